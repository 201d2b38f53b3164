#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small images of processes, of every format that ckptfs-classify knows, byte by byte: core files and DMTCP images into DIRECTORY/formats, what CRIU
writes beside its pages into DIRECTORY/criu, as tests/unit/store/classify/test_criu.c takes it apart.
With --dmtcp VERSION PID FILE: an image of a stopped process as DMTCP of this version writes it."""
import os
import struct
import sys

PROGRAM, LIBC, DATA = "/opt/bin/app", "/usr/lib/libc-2.36.so.6", "/data/input.h5"
# start, length in the image, file: the program, its bss, its heap, memory, a library, its bss, a file, the vdso, two stacks
MAP = [(0x400000, 32, PROGRAM), (0x600000, 48, PROGRAM), (0x601000, 40, None), (0x1234000, 64, None), (0x7f0000000000, 24, None),
       (0x7f1000000000, 56, LIBC), (0x7f1000001000, 16, LIBC), (0x7f1000002000, 8, None), (0x7f2000000000, 72, DATA),
       (0x7f3000000000, 80, None), (0x7ffd00000000, 88, None), (0x7ffe00000000, 0x20, None)]
VDSO, FIRST_STACK, THREAD_STACK = MAP[11][0], MAP[10][0], MAP[9][0]


def note(kind, data):
    return struct.pack("<III", 5, len(data), kind) + b"CORE\0\0\0\0" + data + bytes(-len(data) % 4)


def status(machine, stack):
    registers = bytearray(34 * 8)
    struct.pack_into("<Q", registers, (19 if machine == 62 else 31) * 8, stack)
    return bytes(112) + bytes(registers)


def core(machine=62, memory=4096, many=False):
    files = [(start, name) for start, _, name in MAP if name]
    mapped = struct.pack("<QQ", len(files), 4096) + b"".join(struct.pack("<QQQ", start, start + memory, 0) for start, _ in files)
    mapped += b"".join(name.encode() + b"\0" for _, name in files)
    vector = b"".join(struct.pack("<QQ", *pair) for pair in [(3, 0x400040), (25, FIRST_STACK + 9), (33, VDSO), (0, 0)])
    notes = note(1, status(machine, FIRST_STACK + 8)) + note(1, status(machine, THREAD_STACK + 8)) + note(6, vector) + note(0x46494C45, mapped)
    nr = len(MAP) + 1
    at = 64 + 56 * nr + (64 if many else 0)
    headers = struct.pack("<IIQQQQQQ", 4, 0, at, 0, 0, len(notes), 0, 1)
    at += len(notes)
    data = b""
    for i, (start, length, _) in enumerate(MAP):
        headers += struct.pack("<IIQQQQQQ", 1, 6, at, start, 0, length, memory, 1)
        data += bytes([i + 1]) * length
        at += length
    section = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, nr, 0, 0) if many else b""
    elf = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 4, machine, 1, 0, 64, 64 + 56 * nr if many else 0, 0, 64, 56,
                                                    0xFFFF if many else nr, 64, 1 if many else 0, 0)
    return elf + headers + section + notes + data


def area(start, size, name=b"", file_bytes=0, properties=0, data=None):
    head = struct.pack("<11Q", start, start + size, size, 0, 3, 2, 0, 0, 0, file_bytes or 2**64 - 1, properties) + name
    length = 0 if properties & 3 else file_bytes or size
    return head + bytes(4096 - len(head)) + (b"x" * length if data is None else data)


def dmtcp(version):
    """Areas of few bytes, so that files are small."""
    if version == 4:
        out = (b"DMTCP_CHECKPOINT_IMAGE_v4.0\n" + bytes(4096))[:4096] * 2
    else:
        out = (b"DMTCP_CHECKPOINT_IMAGE_v2.0\n" + bytes(4096))[:4096] + (b"MTCP_HEADER_v2.2\n" + bytes(4096))[:4096]
    out += area(0x400000, 4096, PROGRAM.encode(), 100)
    if version == 4:
        out += area(0x401000, 80, properties=2) + area(0x401000, 40, properties=5) + area(0x401028, 40, properties=4)
        out += area(0x1000000, 64, b"[heap]", properties=4) + area(0x7F0000000000, 72, LIBC.encode(), 72)
        out += area(0x7F2000000000, 4096, DATA.encode(), 50) + area(0x7FFF00000000, 48, b"[vvar]")
    out += area(0x7FFE00000000, 32, b"[stack]", properties=4)
    return out + struct.pack("<QQQ", 0, 0, 2**64 - 1) + bytes(4096 - 24)


def dmtcp_of(version, pid):
    """An image of all memory of a stopped process, laid out as by DMTCP 3 or 4."""
    if version == 4:
        yield (b"DMTCP_CHECKPOINT_IMAGE_v4.0\n" + bytes(4096))[:4096] * 2
    else:
        yield (b"DMTCP_CHECKPOINT_IMAGE_v2.0\n" + bytes(4096))[:4096] + (b"MTCP_HEADER_v2.2\n" + bytes(4096))[:4096]
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            words = line.split(None, 5)
            start, end = (int(x, 16) for x in words[0].split("-"))
            name = words[5].strip() if len(words) > 5 else ""
            if "r" not in words[1] or name.startswith("[v"):  # the kernel's own: DMTCP leaves them out as well
                continue
            in_file = 0
            if name.startswith("/"):  # at most as many bytes as the file has there
                in_file = min(end - start, os.path.getsize(name) - int(words[2], 16))
            memory.seek(start)
            yield area(start, end - start, name.encode(), in_file, 4 if version == 4 and not in_file else 0, memory.read(in_file or end - start))
    yield struct.pack("<QQQ", 0, 0, 2**64 - 1) + bytes(4096 - 24)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def message(*fields):
    """Pairs of number and integer or bytes."""
    return b"".join(varint(n << 3 | 2) + varint(len(v)) + v if isinstance(v, bytes) else varint(n << 3) + varint(v) for n, v in fields)


def criu_file(magic, *messages):
    return struct.pack("<II", 0x54564319, magic) + b"".join(struct.pack("<I", len(m)) + m for m in messages)


def criu():
    """pagemap-7.img of pages-3.img, mm-7.img, files.img, one behind the other with their lengths before them. 9 pages."""
    def vma(start, end, status, file=0):
        return 14, message((1, start), (2, end), (3, 0), (4, file), (5, 3), (6, 2), (7, status), (8, 0))

    def reg(number, name):
        return message((1, 1), (2, number), (3, message((1, number), (2, 0), (3, 0), (5, b""), (6, name.encode()))))

    mm = criu_file(0x57492820, message((1, 0x400000), (5, 0x7FFE00001800), (12, 1), (13, 33), vma(0x400000, 0x401000, 1 | 64, 1),
                                       vma(0x401000, 0x402000, 1 | 512), vma(0x1000000, 0x1003000, 1 | 32 | 512),
                                       vma(0x7F0000000000, 0x7F0000001000, 1 | 64, 2), vma(0x7F1000000000, 0x7F1000001000, 1 | 128, 3),
                                       vma(0x7FFE00000000, 0x7FFE00002000, 1 | 512), vma(0x7FFF00000000, 0x7FFF00001000, 1 | 8)))
    pagemap = criu_file(0x56084025, message((1, 3)), message((1, 0x400000), (2, 2), (4, 4)), message((1, 0x1000000), (2, 2), (4, 6)),
                        message((1, 0x1002000), (2, 1), (3, 1), (4, 1)), message((1, 0x7F0000000000), (2, 1)),
                        message((1, 0x7F1000000000), (2, 1), (4, 4), (5, 1)), message((1, 0x7FFE00000000), (2, 2), (4, 4)),
                        message((1, 0x7FFF00000000), (2, 1), (4, 4)))
    files = criu_file(0x56303138, reg(1, PROGRAM), reg(2, LIBC), reg(3, DATA))
    return b"".join(struct.pack("<I", len(f)) for f in (pagemap, mm, files)) + pagemap + mm + files


def files():
    yield "formats/core-x86", core()
    yield "formats/core-arm", core(machine=183)
    yield "formats/core-many", core(many=True)
    yield "formats/core-cut", core()[:-100]
    yield "formats/dmtcp3", dmtcp(3)
    yield "formats/dmtcp4", dmtcp(4)
    yield "criu/tree", criu()


if __name__ == "__main__" and sys.argv[1] == "--dmtcp":
    with open(sys.argv[4], "wb") as f:
        for data in dmtcp_of(int(sys.argv[2]), int(sys.argv[3])):
            f.write(data)
elif __name__ == "__main__":
    for name, data in files():
        os.makedirs(os.path.dirname(os.path.join(sys.argv[1], name)), exist_ok=True)
        with open(os.path.join(sys.argv[1], name), "wb") as f:
            f.write(data)
