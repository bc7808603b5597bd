"""Asks a driver's socket for its name with Python's gRPC library: grpcio.py SOCKET [OPTION=VALUE...]

Prints the answer and ends with 0, or prints the status and ends with 1.
"""

import sys

import grpc

socket = sys.argv[1]
options = [tuple(option.split("=", 1)) for option in sys.argv[2:]]
with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
    ask = channel.unary_unary(
        "/csi.v1.Identity/GetPluginInfo",
        request_serializer=lambda request: request,
        response_deserializer=lambda answer: answer,
    )
    try:
        print(ask(b"", timeout=10))
    except grpc.RpcError as error:
        sys.exit(f"{error.code()}: {error.details()}")
