#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: fake_s3.py [--bucket NAME] [--upstream HOST:PORT] [--tls CERTIFICATE KEY]

An S3 object store in memory, on a port of the loopback that it prints; or, with --upstream, a proxy in front of another
one. Faults are injected by rules. It reads commands from its standard input, answers each with a line, and ends with
it.

  credentials ACCESS SECRET [TOKEN]   the only ones accepted from now on (not by a proxy, which checks no signature)
  rule METHOD KEY SKIP TIMES ACTION [ARGUMENT...]
                                      METHOD and KEY (a part of the path) may be *. After SKIP requests that match, the
                                      action happens TIMES times. Of several rules the first counts
  clear                               no rules, and all counters are 0
  left                                how many times rules would still act
  seen METHOD KEY                     how many such requests there were
  connections                         how many there were
  put KEY                             an empty object; the key is percent-encoded

Actions, in place of the answer or beside it:
  status CODE NAME [MESSAGE...]       an error, and no effect
  early-status CODE NAME              the same before the body has arrived; the connection ends
  status-after CODE NAME              an error, but the request takes effect
  html CODE                           an answer that is no XML
  reset, reset-after                  the connection is reset, without and with an effect
  close-after                         the answer is right, and the connection ends without notice
  cut N, cut-close N                  the body ends after N bytes: reset, or closed
  ignore-range, shift-range, late-range, no-range
                                      a whole object; an answer about other bytes; about fewer; no Content-Range
  unconditional                       If-None-Match is ignored
  region NAME                         the bucket is in another one
  skew SECONDS                        a clock that differs by so much
  quote                               an error whose message has all that came with the request
  garbage, unsorted                   of lists
  hang                                no answer until the client gives up
  endless CODE PART                   a body, headers or interim responses that never end
"""
import argparse
import datetime
import email.utils
import hashlib
import http.client
import http.server
import os
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from s3_client import digest, quoted, signature


def error(status, code, message="", extra=""):
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message>{extra}<RequestId>1</RequestId></Error>'
    return status, [("Content-Type", "application/xml")], body.encode()


class Store:
    """Objects in memory. A request is (method, path, query, headers, body), an answer (status, headers, body)."""

    def __init__(self, bucket):
        self.bucket, self.objects, self.lock = bucket, {}, threading.Lock()
        self.credentials = ("access", "secret", None)

    def check(self, q):
        method, path, query, headers, body = q
        access, secret, token = self.credentials
        words = headers.get("authorization", "").replace(",", " ").split()
        fields = dict(w.split("=", 1) for w in words[1:])
        if len(words) != 4 or words[0] != "AWS4-HMAC-SHA256":
            return error(403, "AccessDenied", "there is no signature")
        given, day, region, service, end = fields["Credential"].split("/")
        signed = fields["SignedHeaders"].split(";")
        must = {h for h in headers if h.startswith("x-amz-")} | {"host"}
        if given != access:
            return error(403, "InvalidAccessKeyId", "no such access key")
        if headers.get("x-amz-security-token") != token:
            return error(400, "ExpiredToken", "The provided token has expired.")
        if not must <= set(signed) or signed != sorted(signed) or (service, end) != ("s3", "aws4_request"):
            return error(403, "AccessDenied", f"not signed: {must - set(signed)}")
        sent = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs(sent.timestamp() - time.time()) > 900 or headers["x-amz-date"][:8] != day:
            return error(403, "RequestTimeTooSkewed", "The difference between the request time and the server's time is too large.")
        if signature(secret, method, path, query, headers, signed, headers["x-amz-content-sha256"], region) != fields["Signature"]:
            return error(403, "SignatureDoesNotMatch", "The request signature we calculated does not match")
        if headers["x-amz-content-sha256"] != digest(body):
            return error(400, "XAmzContentSHA256Mismatch", "The provided digest does not match what was computed.")
        return None

    def respond(self, q, ignore=()):
        method, path, query, headers, body = q
        wrong = self.check(q)
        if wrong:
            return wrong
        host, path = headers["host"].split(":")[0], urllib.parse.unquote(path)
        bucket, _, key = (path[1:] if not host.startswith(self.bucket + ".") else self.bucket + path).partition("/")
        if bucket != self.bucket:
            return error(404, "NoSuchBucket", "The specified bucket does not exist")
        with self.lock:
            if method == "GET" and not key:
                return self.list(dict(urllib.parse.parse_qsl(query, keep_blank_values=True)))
            there = self.objects.get(key)
            if method == "PUT":
                if there and headers.get("if-none-match") == "*" and "condition" not in ignore:
                    return error(412, "PreconditionFailed", "At least one of the preconditions did not hold")
                self.objects[key] = (body, {h: v for h, v in headers.items() if h.startswith("x-amz-meta-")})
                return 200, [("ETag", f'"{hashlib.md5(body).hexdigest()}"')], b""
            if method == "DELETE":
                self.objects.pop(key, None)
                return 204, [], b""
            if not there:
                return error(404, "NoSuchKey", "The specified key does not exist.")
            return self.get(there, headers.get("range") if "range" not in ignore else None)

    @staticmethod
    def get(there, wanted):
        body, meta = there
        extra = list(meta.items()) + [("ETag", f'"{hashlib.md5(body).hexdigest()}"')]
        if not wanted:
            return 200, extra, body
        first, last = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
        if first >= len(body):
            return error(416, "InvalidRange", "The requested range is not satisfiable")
        last = min(last, len(body) - 1)
        return 206, extra + [("Content-Range", f"bytes {first}-{last}/{len(body)}")], body[first:last + 1]

    def list(self, p):
        if p.get("list-type") != "2":
            return error(501, "NotImplemented", "only lists of type 2")
        coded = quoted if p.get("encoding-type") == "url" else escape
        keys = sorted((k for k in self.objects if k.startswith(p.get("prefix", "")) and k > p.get("start-after", "")),
                      key=lambda k: k.encode())
        nr = int(p.get("max-keys", 1000))
        items = "".join(f"<Contents><Key>{coded(k)}</Key><Size>{len(self.objects[k][0])}</Size><Owner><ID>me &amp; you</ID></Owner></Contents>"
                        for k in keys[:nr])
        kind = "<EncodingType>url</EncodingType>" if p.get("encoding-type") == "url" else ""
        body = ('<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                f"<Name>{self.bucket}</Name><Prefix/><KeyCount>{min(len(keys), nr)}</KeyCount>{kind}"
                f"<IsTruncated>{'true' if len(keys) > nr else 'false'}</IsTruncated>{items}</ListBucketResult>")
        return 200, [("Content-Type", "application/xml")], body.encode()


class Upstream:
    """Another store. Headers pass as they are, so the signature, which has the name of this host, is right there."""

    def __init__(self, place):
        self.place = place

    def respond(self, q, ignore=()):
        method, path, query, headers, body = q
        c = http.client.HTTPConnection(self.place, timeout=120)
        c.putrequest(method, path + ("?" + query if query else ""), skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if name not in ("expect", "connection"):
                c.putheader(name, value)
        c.endheaders(body)
        answer = c.getresponse()
        content = answer.read()
        length = answer.getheader("Content-Length") if method == "HEAD" else None
        kept = [(n, v) for n, v in answer.getheaders()
                if n.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server")]
        c.close()
        return answer.status, kept + ([("Content-Length", length)] if length else []), content


class Rules:
    def __init__(self):
        self.lock, self.connections = threading.Lock(), 0
        self.clear()

    def clear(self):
        self.rules, self.requests, self.connections = [], [], 0

    @staticmethod
    def matches(method, key, q):
        return method in ("*", q[0]) and (key == "*" or key in q[1] or key in q[2])

    def add(self, words):
        self.rules.append([words[0], words[1], int(words[2]), int(words[3]), words[4:]])

    def take(self, q):
        """The action for a request."""
        with self.lock:
            self.requests.append(q[:3])
            for rule in self.rules:
                if not self.matches(rule[0], rule[1], q):
                    continue
                if rule[2] > 0:
                    rule[2] -= 1
                elif rule[3] > 0:
                    rule[3] -= 1
                    return rule[4]
        return [""]

    def command(self, words):
        with self.lock:
            if words[0] == "rule":
                self.add(words[1:])
            elif words[0] == "clear":
                self.clear()
            elif words[0] == "left":
                return str(sum(rule[3] for rule in self.rules))
            elif words[0] == "seen":
                return str(sum(self.matches(words[1], words[2], q) for q in self.requests))
            elif words[0] == "connections":
                return str(self.connections)
            elif words[0] == "credentials":
                store.credentials = (words[1], words[2], words[3] if len(words) > 3 else None)
            elif words[0] == "put":
                store.objects[urllib.parse.unquote(words[1])] = (b"", {})
            else:
                return "unknown command"
        return "ok"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    skew = 0

    def setup(self):
        super().setup()
        with rules.lock:
            rules.connections += 1

    def log_message(self, *args):
        pass

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(time.time() + self.skew, usegmt=True)

    def handle_expect_100(self):
        self.expects = True  # the body is asked for when it is known that there is no early answer
        return True

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
        self.rfile.close()

    def answer(self, answer, cut=None, announce=True):
        status, headers, body = answer
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers) and status != 204:
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection and announce:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])

    def answer_without_end(self, status, part):
        self.close_connection = True
        more = {"body": b"x" * 65536, "headers": b"x-more: " + b"y" * 8000 + b"\r\n",
                "interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000}[part]
        if part != "interim":
            self.wfile.write(b"HTTP/1.1 %d Odd\r\n" % status)
        if part == "body":
            self.wfile.write(b"Connection: close\r\n\r\n")
        while True:
            self.wfile.write(more)

    def serve(self):
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = int(headers.get("content-length", 0))
        q = (self.command, path, query, headers)
        action, *args = rules.take(q)
        if action == "early-status":
            self.close_connection = True
            self.answer(error(int(args[0]), args[1]))
            return
        if headers.get("expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        q = q + (self.rfile.read(length),)
        if len(q[4]) < length:
            self.close_connection = True
            return
        self.act(q, action, args)

    def act(self, q, action, args):
        if action == "status":
            self.answer(error(int(args[0]), args[1], " ".join(args[2:])))
        elif action == "html":
            self.answer((int(args[0]), [("Content-Type", "text/html")], b"<html><body>Not here</body></html>"))
        elif action == "quote":
            self.answer(error(400, "Odd", " ".join(f"{n}: {v}" for n, v in q[3].items())[:200]
                              if not args else q[3].get(args[0], "")))
        elif action == "region":
            self.answer(error(301, "PermanentRedirect", "elsewhere", f"<Region>{args[0]}</Region>"))
        elif action == "skew":
            self.skew = int(args[0])
            self.answer(error(403, "RequestTimeTooSkewed"))
            self.skew = 0
        elif action == "garbage":
            self.answer((200, [], b"<ListBucketResult><Contents><Key>a</Ke"))
        elif action == "unsorted":
            keys = "".join(f"<Contents><Key>{q[2].partition('prefix=')[2].partition('&')[0].replace('%2F', '/')}{k}</Key></Contents>" for k in "ba")
            self.answer((200, [], f"<ListBucketResult>{keys}</ListBucketResult>".encode()))
        elif action == "hang":
            try:
                self.connection.recv(1)
            except OSError:
                pass
            self.close_connection = True
        elif action == "reset":
            self.reset()
        elif action == "endless":
            self.answer_without_end(int(args[0]), args[1])
        else:
            self.act_on_answer(store.respond(q, {"unconditional": ["condition"], "ignore-range": ["range"]}.get(action, ())),
                               action, args)

    def act_on_answer(self, answer, action, args):
        status, headers, body = answer
        if action == "status-after":
            self.answer(error(int(args[0]), args[1]))
        elif action == "reset-after":
            self.reset()
        elif action in ("cut", "cut-close"):
            self.close_connection = True
            self.answer(answer, int(args[0]), announce=False)
            if action == "cut":
                self.reset()
        elif action == "close-after":
            self.answer(answer)
            self.close_connection = True
        elif action in ("shift-range", "late-range", "no-range"):
            headers = [(n, v) for n, v in headers if n.lower() != "content-range"]
            at = [v for n, v in answer[1] if n.lower() == "content-range"]
            if action != "no-range" and at:
                first, last, size = (int(n) for n in at[0].removeprefix("bytes ").replace("/", "-").split("-"))
                more = 1 if action == "shift-range" else 0
                headers.append(("Content-Range", f"bytes {first + 1}-{last + more}/{size + more}"))
            self.answer((status, headers, body))
        else:
            self.answer(answer)

    do_GET = do_PUT = do_HEAD = do_DELETE = serve


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (OSError, ValueError)):  # clients give up, and are reset
            super().handle_error(request, client_address)

    def finish_request(self, request, client_address):
        if context:
            request = context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)


parser = argparse.ArgumentParser()
parser.add_argument("--bucket", default="bucket")
parser.add_argument("--upstream")
parser.add_argument("--tls", nargs=2)
options = parser.parse_args()
store = Upstream(options.upstream) if options.upstream else Store(options.bucket)
rules = Rules()
context = None
if options.tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*options.tls)
server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
for line in sys.stdin:
    print(rules.command(line.split()), flush=True)
os._exit(0)
