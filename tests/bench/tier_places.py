# SPDX-License-Identifier: GPL-3.0-or-later
"""Back ends of a tier for ./bench tier, and plain clients of them: threads that put whole objects from memory, or get ranges into
memory, and do nothing else. They share no code with ckptfs."""
import concurrent.futures
import datetime
import http.client
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

from common import TOP

sys.path.insert(0, os.path.join(TOP, "tests/tier"))
from s3_client import canonical_query, digest, quoted, signature  # noqa: E402

BUCKET = "checkpoints"
IDLE_MAX = 10  # seconds after which a connection is not used again
CEPH = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "radosgw", "radosgw-admin", "monmaptool"]
FAKE = os.path.join(TOP, "tests/tier/fake_s3.py")


def in_parallel(nr, work, items):
    """work(item) for each, by so many threads."""
    with concurrent.futures.ThreadPoolExecutor(nr) as threads:
        return list(threads.map(work, items))


class Directory:
    """dir: a directory on the disk under --dir."""

    name = "dir"

    def __init__(self, base):
        self.top = os.path.join(base, "dir")
        os.mkdir(self.top)

    def close(self):
        shutil.rmtree(self.top)

    def prefix(self, name):
        """Prepares a tier of this name: its URL and the options of a mount."""
        os.mkdir(os.path.join(self.top, name))
        return f"dir:{os.path.join(self.top, name)}", {}

    def objects(self, prefix):
        """Key -> bytes."""
        found = {}
        for path, _, names in os.walk(os.path.join(self.top, prefix)):
            for name in names:
                found[os.path.relpath(os.path.join(path, name), self.top)] = os.path.getsize(os.path.join(path, name))
        return found

    def put(self, key, data):
        path = os.path.join(self.top, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb", buffering=0) as f:
            while data:
                data = data[f.write(data):]
            os.fsync(f.fileno())

    def get(self, key, off, into):
        with open(os.path.join(self.top, key), "rb", buffering=0) as f:
            while into:
                n = os.preadv(f.fileno(), [into], off)
                if n == 0:
                    raise RuntimeError(f"{key} ends early")
                into, off = into[n:], off + n

    def remove(self, prefix):
        shutil.rmtree(os.path.join(self.top, prefix))

    def rclone(self, prefix):
        """The target of a copy, and the environment that it needs."""
        return os.path.join(self.top, prefix), {}

    def counter(self):
        return None


class Counter:
    """tests/tier/fake_s3.py as a store of its own, or as a proxy in front of one."""

    def __init__(self, *options):
        self.process = subprocess.Popen([sys.executable, FAKE, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def seen(self, method):
        return int(self.ask("seen", method, "*"))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class S3:
    """A bucket. Requests with long bodies are not signed with their digest, which would make the plain client slower."""

    def __init__(self, base, port, access, secret, signs_bodies):
        self.base, self.port, self.access, self.secret, self.signs_bodies = base, port, access, secret, signs_bodies
        self.threads = threading.local()

    def conf(self, port):
        """A file for the mount option tier_config."""
        path = os.path.join(self.base, f"{self.name}-{port}.conf")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(f"aws_access_key_id = {self.access}\naws_secret_access_key = {self.secret}\nendpoint_url = http://127.0.0.1:{port}\n")
        return path

    def prefix(self, name, port=None):
        return f"s3://{BUCKET}/{name}", {"tier_config": self.conf(port or self.port)}

    def request(self, method, key, query="", body=b"", headers=(), into=None):
        """Status and body of the answer; with `into` the body is received into it."""
        if time.monotonic() > getattr(self.threads, "until", 0):  # stores close connections that are idle
            self.threads.connection = socket.create_connection(("127.0.0.1", self.port))
            self.threads.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.threads.until = time.monotonic() + IDLE_MAX
        path = f"/{BUCKET}" + (f"/{quoted(key, '/')}" if key else "")
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        payload = digest(body) if self.signs_bodies or not len(body) else "UNSIGNED-PAYLOAD"
        those = {"host": f"127.0.0.1:{self.port}", "x-amz-content-sha256": payload, "x-amz-date": now, **dict(headers)}
        signed = sorted(those)
        sign = signature(self.secret, method, path, query, those, signed, payload, "us-east-1")
        those["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.access}/{now[:8]}/us-east-1/s3/aws4_request, "
                                  f"SignedHeaders={';'.join(signed)}, Signature={sign}")
        those["content-length"] = str(len(body))
        c = self.threads.connection
        first = f"{method} {path}{'?' + canonical_query(query) if query else ''} HTTP/1.1\r\n"
        c.sendall((first + "".join(f"{n}: {v}\r\n" for n, v in those.items()) + "\r\n").encode())
        if len(body):
            c.sendall(body)
        return self.receive(c, into)

    @staticmethod
    def receive(c, into):
        if into is None:
            answer = http.client.HTTPResponse(c)
            answer.begin()
            return answer.status, answer.read()
        got = b""  # a range, in as few calls as possible
        while b"\r\n\r\n" not in got:
            piece = c.recv(65536)
            if not piece:
                raise RuntimeError("the S3 store has closed a connection")
            got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        status = int(lines[0].split()[1])
        if status != 206 or f"content-length: {len(into)}" not in lines:
            raise RuntimeError(f"not the range of {len(into)} bytes, but: {got[:1000]}")
        into[:len(body)] = body
        rest = len(into) - len(body)
        if rest and c.recv_into(into[len(body):], rest, socket.MSG_WAITALL) < rest:
            raise RuntimeError("a body of the S3 store is cut off")
        return status, into

    def must(self, *arguments, **options):
        status, body = self.request(*arguments, **options)
        if status >= 300:
            raise RuntimeError(f"{arguments[0]} {arguments[1]}: HTTP status {status}: {body[:500]}")
        return body

    def objects(self, prefix):
        found, after = {}, ""
        while True:
            query = f"list-type=2&prefix={quoted(prefix + '/')}" + (f"&start-after={quoted(after)}" if after else "")
            top = xml.etree.ElementTree.fromstring(self.must("GET", "", query))
            space = top.tag.partition("}")[0] + "}"
            for item in top.iter(space + "Contents"):
                after = item.find(space + "Key").text
                found[after] = int(item.find(space + "Size").text)
            if top.find(space + "IsTruncated").text != "true":
                return found

    def put(self, key, data):
        self.must("PUT", key, body=data)

    def get(self, key, off, into):
        self.must("GET", key, headers=[("range", f"bytes={off}-{off + len(into) - 1}")], into=into)

    def remove(self, prefix):
        for key in self.objects(prefix):
            self.must("DELETE", key)

    def rclone(self, prefix):
        return f"bench:{BUCKET}/{prefix}", {
            "RCLONE_CONFIG_BENCH_TYPE": "s3", "RCLONE_CONFIG_BENCH_PROVIDER": "Ceph", "RCLONE_CONFIG_BENCH_ACCESS_KEY_ID": self.access,
            "RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY": self.secret, "RCLONE_CONFIG_BENCH_ENDPOINT": f"http://127.0.0.1:{self.port}"}


class Memory(S3):
    """S3 store in memory, which checks signatures and digests."""

    name = "memory"

    def __init__(self, base):
        self.server = Counter("--bucket", BUCKET)
        super().__init__(base, self.server.port, "key", "a-secret-of-the-benchmark", True)
        self.server.ask("credentials", self.access, self.secret)

    def close(self):
        self.server.close()

    def rclone(self, prefix):
        return None  # it has no multipart uploads

    def counter(self):
        self.server.ask("clear")
        return self.server


class Gateway(S3):
    """The S3 gateway of a Ceph of one node, on the disk under --dir."""

    name = "s3"

    def __init__(self, base):
        self.program, self.top = os.path.join(TOP, "tests/tier/gateway"), os.path.join(base, "ceph")
        out = subprocess.run([self.program, "up", self.top], check=True, stdout=subprocess.PIPE, text=True).stdout
        settings = dict(word.split("=", 1) for word in out.split())
        super().__init__(base, int(settings["AWS_ENDPOINT_URL"].rsplit(":", 1)[1]), settings["AWS_ACCESS_KEY_ID"],
                         settings["AWS_SECRET_ACCESS_KEY"], False)
        self.must("PUT", "")

    def close(self):
        subprocess.run([self.program, "down", self.top], check=True)
        shutil.rmtree(self.top)

    def counter(self):
        return Counter("--upstream", f"127.0.0.1:{self.port}")


PLACES = {p.name: p for p in (Directory, Memory, Gateway)}


def missing(name):
    """Why a back end cannot be used, or None."""
    if name == "s3" and not all(shutil.which(program) for program in CEPH):
        return "Ceph is not installed: run .ci/install tier"
    return None
