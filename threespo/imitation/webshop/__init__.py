"""How base policies learn WebShop: curriculum, scripted expert, shipped results."""
