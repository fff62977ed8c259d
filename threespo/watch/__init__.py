"""Looking at studies from outside: status, progress, copies of curves, exports, the index, play."""
