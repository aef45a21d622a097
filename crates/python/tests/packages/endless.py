"""A package that is imported for ever."""

import time

print("here it stays", flush=True)
while True:
    time.sleep(1)
