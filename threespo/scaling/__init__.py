"""What a study costs before it starts: memory, work, time, disk, money; and whether this machine can run it."""
