# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that lies about what it has sealed: liar.py SOCKET FILE

It stands for the agent of a mount and for another node, "other", whose mount answers questions (mpi-agent/daemon/nodes/question_format.h) as FILE says at
the moment; it is one word:
  true        it has sealed a/b, with a directory, an empty file and a link in it
  gone        likewise, but when it is to lend that it is gone
  endless     its list goes on for ever
  path        its list has a path with ..
  short       its catalog ends too soon
  never       its catalog goes on, without a byte more
  seal        its catalog is of another seal
  twice       two files of one name
  up          a file called ..
  busy        it has too much to do, the first two times; else as true
"""
import errno
import struct
import sys

from agent import Agent

QUERY, ANSWER = 30, 32
OTHER = b"other" + bytes(11)
INO, SEALED, END = 5, 7, 2**64 - 1
TABLE = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    TABLE.append(i)


def crc32c(p):
    c = 0xFFFFFFFF
    for b in p:
        c = TABLE[(c ^ b) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF


def varint(n):
    p = b""
    while n >= 128:
        p += bytes([n & 127 | 128])
        n >>= 7
    return p + bytes([n])


def inode(directory, name, mode, rest=b""):
    p = varint(directory) + bytes([len(name)]) + name + varint(mode) + varint(0) * 3 + struct.pack("<4q", 1, 2, 3, 4) + rest
    return b"\1" + varint(len(p)) + p


def catalog(lie):
    head = b"CKPTCAT\n" + struct.pack("<II16sQQI", 1, 0, OTHER, INO, SEALED + (lie == "seal"), 0)
    records = [inode(0, b"", 0o40755), inode(0, b"d", 0o40700), inode(0, b".." if lie == "up" else b"file", 0o100644, varint(0)),
               inode(1, b"link", 0o120777, b"../file")]
    if lie == "twice":
        records.append(inode(0, b"file", 0o10644))
    all_records = b"".join(records)
    end = varint(len(records)) + struct.pack("<I", crc32c(all_records))
    return head + struct.pack("<I", crc32c(head)) + all_records + b"\5" + varint(len(end)) + end


class Liar(Agent):
    nr_busy = 0

    def answer(self, lie, question):
        _, kind, seals, copies, store, ino, sealed, off = struct.unpack("<IIQQ16sQqQ", question)
        if kind == 1:
            path = b"../b" if lie == "path" else b"a/b"
            after = (seals, copies) if lie == "endless" else (END, END)
            return 0, struct.pack("<QQ", *after) + struct.pack("<16sQqBBH", OTHER, INO, SEALED, 5, 0, len(path)) + b"other" + path
        assert (store, ino, sealed) == (OTHER, INO, SEALED), (store, ino, sealed)
        if kind == 3:
            return (errno.ENODATA, b"") if lie == "gone" else (0, b"")
        bytes_left = catalog(lie)[off:]
        if lie == "never" and not bytes_left:
            return 0, b"\0"
        if lie == "short":
            return 0, b"\1" + bytes_left[:-3]
        return 0, bytes([lie != "never" and len(bytes_left) <= 100]) + bytes_left[:100]

    def query(self, number, body):
        lie = open(sys.argv[2]).read().strip()
        assert body[:16] == OTHER
        if lie == "busy" and self.nr_busy < 2:
            self.nr_busy += 1
            self.say(ANSWER, number, struct.pack("<I", errno.EBUSY))
            return
        error, p = self.answer(lie, body[16:])
        self.say(ANSWER, number, struct.pack("<I", error) + p)


liar = Liar(sys.argv[1])
print("name", liar.name, flush=True)
while True:
    m = liar.attend()
    if m and m[0] == QUERY:
        liar.query(m[1], m[2])
