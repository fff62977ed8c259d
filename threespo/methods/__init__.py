"""One small file per method. A method is a generator of requests; see ``threespo/protocol.py``."""
