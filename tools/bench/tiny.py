"""A guest without Linux: one byte to the log port, then power off.

The same machine code runs in 32-bit mode (PVH entry, as QEMU starts an ELF)
and in 64-bit mode (direct boot, as hutch-vmm starts one), so that monitors are
compared by one guest.
"""

import struct

LOAD_ADDRESS = 0x100000
PVH_NOTE_TYPE = 18  # XEN_ELFNOTE_PHYS32_ENTRY

CODE = bytes.fromhex(
    "b021"  # mov al, '!'
    "e6e9"  # out 0xe9, al
    "66ba0005"  # mov dx, 0x500
    "b8f00f0000"  # mov eax, 0x0ff0
    "ef"  # out dx, eax
    "f4"  # hlt
    "ebfd"  # jmp to the hlt
)
# Counts for ever: for restore, the guest writes a byte each turn.
CODE_LOOP = bytes.fromhex("b021" "e6e9" "b900002000" "ffc9" "75fc" "ebf1")


def elf(code=CODE):
    """Bytes of an ELF64 with one PT_LOAD and a PVH note."""
    name = b"Xen\0"
    note = struct.pack("<III", len(name), 4, PVH_NOTE_TYPE) + name
    note += struct.pack("<I", LOAD_ADDRESS)
    header_bytes, segment_bytes, segments = 64, 56, 2
    at_note = header_bytes + segment_bytes * segments
    at_code = 0x1000
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    head = ident + struct.pack(
        "<HHIQQQIHHHHHH",
        2, 62, 1, LOAD_ADDRESS, header_bytes, 0, 0,
        header_bytes, segment_bytes, segments, 0, 0, 0,
    )
    load = struct.pack(
        "<IIQQQQQQ", 1, 7, at_code, LOAD_ADDRESS, LOAD_ADDRESS,
        len(code), len(code), 0x1000,
    )
    notes = struct.pack(
        "<IIQQQQQQ", 4, 4, at_note, 0, 0, len(note), len(note), 4
    )
    image = head + load + notes + note
    return image + bytes(at_code - len(image)) + code
