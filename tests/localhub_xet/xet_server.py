"""The storage alone, served by uvicorn; prints its port. Arguments: folder, port (0: any)."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from hubtools.localhub.objects import ObjectStore
from hubtools.localhub.xet.app import cas_app

if __name__ == "__main__":
    root = Path(sys.argv[1])
    listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    app = cas_app(root, ObjectStore(root), lambda token, write: token == "token")
    hub = Starlette(routes=[Mount("/_xet", app=app)])
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(hub, log_level="warning")).run(sockets=[listener])
