"""How base policies learn ALFWorld: curriculum, scripted expert, shipped results."""
