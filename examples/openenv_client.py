"""An OpenEnv server and a client that plays in it (needs threespo[openenv]).

python examples/openenv_client.py
"""

import subprocess
import sys
import time
import urllib.request

from openenv.core.generic_client import GenericEnvClient

server = subprocess.Popen(
    [sys.executable, "-m", "threespo.adapters.openenv", "--split", "valid_seen", "--port", "8765"]
)
address = "http://127.0.0.1:8765"
try:
    while True:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=1).close()
            break
        except OSError:
            time.sleep(0.2)
    with GenericEnvClient(base_url=address).sync() as client:
        result = client.reset(index=0)
        print(result.observation["goal"])
        while not result.done and client.state()["step_count"] < 5:
            command = result.observation["admissible_commands"][0]
            result = client.step({"command": command})
            print(f"> {command}: {result.observation['text'][:60]}")
finally:
    server.terminate()
