# SPDX-License-Identifier: GPL-3.0-or-later
"""An agent that a test speaks through: agent.py SOCKET SCRIPT

It stands for a cluster of two nodes, of which the mount is number 0 (mpi-agent/wire/link_format.h). Pages are known by their content, which
repeats one byte. SCRIPT is a list of words, done one after the other; each prints one line:
  keep        take part in rounds until told otherwise: what is offered is stored by the mount itself, for the other node, too
  away        likewise, but the other node stores it
  lose        likewise, but the other node does not say that it has
  get:BYTE    have the mount read the page of this byte that was offered first
  await       wait for the end of a round
  serve       answer one FETCH with pages of BYTE: serve:BYTE
  stay        until killed
"""
import os
import re
import socket
import struct
import sys

HELLO, WELCOME, NODES, WANT, BEGIN, OFFER, DECISION, STORED, SETTLED, FETCH, GET, CHUNKS, REFUSED = range(1, 14)
HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../mpi-agent/wire/link_format.h")
VERSION = int(re.search(r"#define LINK_VERSION (\d+)u", open(HEADER).read())[1])
PAGE = 4096


class Agent:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.connect(path)
        self.say(HELLO, 0, struct.pack("<I", VERSION))
        kind, number, body = self.hear()
        if kind == REFUSED:
            sys.exit(f"refused: {number}")
        assert kind == WELCOME and len(body) == 136
        self.replicas, = struct.unpack_from("<I", body, 12)
        self.id, self.name = body[24:40], body[72:].rstrip(b"\0").decode()
        nodes = [(self.id, 0, self.name.encode()), (b"other" + bytes(11), 1, b"other")]
        self.say(NODES, 0, struct.pack("<II", 2, 0) + b"".join(struct.pack("<16sI64s", *n) for n in nodes))
        self.mode, self.round, self.first, self.rounds = "keep", 0, None, 0

    def say(self, kind, number, body=b""):
        self.s.sendall(struct.pack("<IHHQ", len(body), kind, 0, number) + body)

    def take(self, n):
        p = b""
        while len(p) < n:
            more = self.s.recv(n - len(p))
            if not more:
                sys.exit("the mount has gone")
            p += more
        return p

    def hear(self):
        n, kind, _, number = struct.unpack("<IHHQ", self.take(16))
        return kind, number, self.take(n)

    def attend(self):
        """One message; what is not about rounds is returned."""
        kind, number, body = self.hear()
        if kind == WANT:
            self.round += 1
            self.say(BEGIN, self.round)
        elif kind == OFFER and number == self.round:
            pages = [body[i:i + 15] for i in range(0, len(body), 15)]
            if pages:
                self.first = pages[0]
            owner = 0 if self.mode == "keep" else 1
            self.say(DECISION, number, b"".join(struct.pack("<IB3x4H", i, 1, owner, 0, 0, 0) for i in range(len(pages))))
        elif kind == STORED and number == self.round:
            self.rounds += 1
            self.say(SETTLED, number, bytes([struct.unpack("<I", body)[0] == 0, self.mode != "lose"]))
        else:
            return kind, number, body

    def do(self, word):
        word, _, byte = word.partition(":")
        if word in ("keep", "away", "lose"):
            self.mode = word
        elif word == "await":
            before = self.rounds
            while self.rounds == before:
                self.attend()
        elif word == "get":
            self.say(GET, 1, self.first + b"\0" + struct.pack("<I", PAGE))
            while not (m := self.attend()):
                pass
            assert m[0] == CHUNKS and m[2] == b"\1" + bytes([int(byte)]) * PAGE, m[2][:20]
        elif word == "serve":
            while not (m := self.attend()):
                pass
            kind, number, body = m
            nodes, chunks = struct.unpack_from("<II", body)
            assert kind == FETCH and body[8:8 + 16] == b"other" + bytes(11), (kind, body[:40])
            self.say(CHUNKS, number, b"\1" * chunks + bytes([int(byte)]) * PAGE * chunks)
        elif word == "stay":
            while True:
                self.attend()


if __name__ == "__main__":
    agent = Agent(sys.argv[1])
    print(f"name {agent.name} replicas {agent.replicas}", flush=True)
    for word in sys.argv[2:]:
        agent.do(word)
        print(word, flush=True)
