#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: s3_client.py ENDPOINT METHOD PATH [QUERY]

Signatures of S3 (AWS signature version 4), written apart from those of ckptfs, so that tests compare two readings of
the specification. As a program: one request without a body; prints the answer, and fails unless it is a success. The
keys are those of the environment, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""
import datetime
import hashlib
import hmac
import http.client
import os
import sys
import urllib.parse


def digest(data):
    return hashlib.sha256(data).hexdigest()


def quoted(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


def canonical_query(query):
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
    return "&".join(f"{k}={v}" for k, v in sorted((quoted(k), quoted(v)) for k, v in pairs))


def signature(secret, method, path, query, headers, signed, payload, region):
    """Of a request with these headers (names in lower case), of which the list `signed` is signed."""
    time = headers["x-amz-date"]
    request = "\n".join([method, quoted(urllib.parse.unquote(path), "/"), canonical_query(query),
                         *(f"{name}:{' '.join(headers[name].split())}" for name in signed), "", ";".join(signed), payload])
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest(request.encode())}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def main():
    endpoint, method, path = sys.argv[1:4]
    query = sys.argv[4] if len(sys.argv) > 4 else ""
    place = urllib.parse.urlsplit(endpoint)
    access, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    region = os.environ.get("AWS_REGION", "us-east-1")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": place.netloc, "x-amz-content-sha256": digest(b""), "x-amz-date": now}
    signed = sorted(headers)
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access}/{now[:8]}/{region}/s3/aws4_request, SignedHeaders={';'.join(signed)}, "
        f"Signature={signature(secret, method, path, query, headers, signed, digest(b''), region)}")
    c = http.client.HTTPConnection(place.netloc, timeout=60)
    c.request(method, path + ("?" + query if query else ""), headers=headers)
    answer = c.getresponse()
    sys.stdout.write(answer.read().decode(errors="replace"))
    if answer.status >= 300:
        sys.exit(f"{method} {path}: HTTP status {answer.status}")


if __name__ == "__main__":
    main()
