"""What a broker answers to each API. `table.py` says which function handles which."""
