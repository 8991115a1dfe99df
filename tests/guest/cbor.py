"""The part of CBOR that the guest protocol uses (RFC 8949), for tests."""

import struct


def head(major, n):
    if n < 24:
        return bytes([major << 5 | n])
    for i, (code, limit) in enumerate(
            ((24, 1 << 8), (25, 1 << 16), (26, 1 << 32), (27, 1 << 64))):
        if n < limit:
            return bytes([major << 5 | code]) + n.to_bytes(1 << i, "big")
    raise ValueError(n)


def encode(v):
    if v is True or v is False:
        return b"\xf5" if v else b"\xf4"
    if v is None:
        return b"\xf6"
    if isinstance(v, int):
        return head(0, v) if v >= 0 else head(1, -1 - v)
    if isinstance(v, (bytes, bytearray)):
        return head(2, len(v)) + bytes(v)
    if isinstance(v, str):
        raw = v.encode()
        return head(3, len(raw)) + raw
    if isinstance(v, (list, tuple)):
        return head(4, len(v)) + b"".join(encode(x) for x in v)
    if isinstance(v, dict):
        return head(5, len(v)) + b"".join(
            encode(k) + encode(x) for k, x in v.items())
    raise TypeError(type(v))


def decode(data):
    v, at = decode_at(data, 0)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes after the value")
    return v


def decode_at(data, at):
    first = data[at]
    at += 1
    major, n = first >> 5, first & 31
    if major == 7:
        return {20: False, 21: True, 22: None}[n], at
    if n >= 24:
        size = 1 << (n - 24)
        n = int.from_bytes(data[at:at + size], "big")
        at += size
    if major == 0:
        return n, at
    if major == 1:
        return -1 - n, at
    if major in (2, 3):
        raw = bytes(data[at:at + n])
        if len(raw) != n:
            raise ValueError("cut short")
        return raw if major == 2 else raw.decode(), at + n
    if major == 4:
        out = []
        for _ in range(n):
            v, at = decode_at(data, at)
            out.append(v)
        return out, at
    if major == 5:
        out = {}
        for _ in range(n):
            k, at = decode_at(data, at)
            out[k], at = decode_at(data, at)
        return out, at
    raise ValueError(f"major type {major}")


FRAME = struct.Struct("<IHHQ")
OUTPUT = struct.Struct("<QQB7x")
