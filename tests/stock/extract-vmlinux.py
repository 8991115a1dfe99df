#!/usr/bin/env python3
"""extract-vmlinux.py BZIMAGE OUT: unpack the ELF inside a bzImage.

A PVH start from the ELF skips decompression by an emulated CPU.  Offsets are
those of the Linux x86 boot protocol (setup_sects 0x1f1, payload 0x248).
"""
import struct
import subprocess
import sys
import zlib

image = open(sys.argv[1], "rb").read()
base = ((image[0x1F1] or 4) + 1) * 512
offset, length = struct.unpack_from("<II", image, 0x248)
packed = image[base + offset : base + offset + length]
TOOLS = {
    b"\xfd7zXZ\0": ["xz", "-dc", "--single-stream"],
    b"\x28\xb5\x2f\xfd": ["zstd", "-dc"],
    b"\x02\x21\x4c\x18": ["lz4", "-dc"],
}
if packed[:2] == b"\x1f\x8b":
    elf = zlib.decompressobj(31).decompress(packed)
else:
    for magic, tool in TOOLS.items():
        if packed.startswith(magic):
            # The payload ends in a length word that the tools call trailing
            # garbage: their status says nothing, the ELF magic below does.
            elf = subprocess.run(
                tool, input=packed, capture_output=True, check=False
            ).stdout
            break
    else:
        sys.exit(f"unknown compression {packed[:8].hex()}")
if elf[:4] != b"\x7fELF":
    sys.exit(f"{sys.argv[1]}: no ELF inside")
with open(sys.argv[2], "wb") as out:
    out.write(elf)
