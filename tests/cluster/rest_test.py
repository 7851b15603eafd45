"""`shoal serve` by REST: rows, columns, base64, odd numbers, every type beside what TensorFlow's model gives; versions,
labels, status, metadata, metrics; wrong JSON by field, oversize, slow and hostile requests.

# needs: tensorflow
"""
# not on the soft device: JSON and HTTP; serving_test.py asks the same models
import base64
import gzip
import http.client
import json
import math
import os
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "interop")]

import numpy as np
import tensorflow as tf

import certificates
import cluster
import tap
from model_server import Client, Server, endless, examples_model, half_plus, zeros


def ask(port, method, path, body=None, headers=None, chunks=None):
    """(status, the answer as JSON, or as text)"""
    c = http.client.HTTPConnection("localhost", port, timeout=cluster.PATIENCE)
    if chunks:
        c.request(method, path, body=iter(chunks), headers={"Transfer-Encoding": "chunked", **(headers or {})},
                  encode_chunked=True)
    else:
        c.request(method, path, body=json.dumps(body) if isinstance(body, (dict, list)) else body, headers=headers or {})
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, json.loads(text) if r.getheader("Content-Type") == "application/json" else text.decode()


def raw(port, data, wait=cluster.PATIENCE):
    """What comes back for bytes, to the end of the connection."""
    with socket.create_connection(("localhost", port), timeout=wait) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while True:
            try:
                more = s.recv(65536)
            except ConnectionResetError:
                return got
            if not more:
                return got
            got += more


def resident(s):
    """Bytes of memory that a server has."""
    with open(f"/proc/{s.process.pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_folder(test):
    def body():
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    return body


def serve(folder, *flags):
    return Server(f"--model_base_path={folder}", "--rest_api_port=0", *flags)


@in_folder
def test_rows_and_columns(folder):
    half_plus(folder, 1)
    with serve(folder) as s:
        url = "/v1/models/default:predict"
        assert ask(s.rest, "POST", url, {"instances": [1.0, 2.0, 5.0]}) == (200, {"predictions": [2.5, 3.0, 4.5]})
        assert ask(s.rest, "POST", url, {"instances": [{"x": 1}, {"x": 2}]}) == (200, {"predictions": [2.5, 3.0]})
        assert ask(s.rest, "POST", url, {"inputs": [1.0, 2.0]}) == (200, {"outputs": [2.5, 3.0]})
        assert ask(s.rest, "POST", url, {"inputs": {"x": [1e0, 2]}, "signature_name": "serving_default"}) == \
            (200, {"outputs": [2.5, 3.0]})
        for v in "/versions/1", "":
            assert ask(s.rest, "POST", f"/v1/models/default{v}:predict", {"inputs": [0]})[0] == 200
        assert ask(s.rest, "POST", "/v1/models/default/versions/2:predict", {"inputs": [0]})[0] == 404
        got = ask(s.rest, "POST", url, '{"instances": [NaN, Infinity, -Infinity]}')[1]["predictions"]
        assert math.isnan(got[0]) and got[1:] == [math.inf, -math.inf], got
        many = np.random.default_rng(1).normal(size=10000).astype(np.float32)
        got = ask(s.rest, "POST", url, {"instances": many.tolist()})[1]["predictions"]
        assert np.array_equal(np.array(got, np.float32), many / 2 + 2)


class Several(tf.Module):
    """Several inputs and outputs, of every type that JSON has."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64, "d"), tf.TensorSpec([None], tf.int64, "i"),
                                  tf.TensorSpec([None], tf.string, "s"), tf.TensorSpec([None], tf.bool, "b"),
                                  tf.TensorSpec([None, 1, 2], tf.uint8, "u")])
    def run(self, d, i, s, b, u):
        return {"d": d * 3, "i": i + 1, "s": tf.strings.join([s, "!"]), "s_bytes": s, "b": tf.logical_not(b),
                "u": u + 1, "h": tf.cast(d, tf.float16)}


@in_folder
def test_several_inputs(folder):
    m = Several()
    tf.saved_model.save(m, os.path.join(folder, "1"), signatures=m.run)
    rows = [{"d": [0.1, 1e300], "i": 2 ** 53 + 1, "s": "a\u00fc\U0001f600\n\"", "b": True, "u": [[1, 2]]},
            {"d": [-1, 2.5e-5], "i": -(2 ** 63), "s": {"b64": base64.b64encode(b"\xff\x00").decode()}, "b": False,
             "u": [[254, 0]]}]
    with serve(folder) as s:
        url = "/v1/models/default:predict"
        code, got = ask(s.rest, "POST", url, {"instances": rows})
        assert code == 200, got
        a, b = got["predictions"]
        assert a["d"] == [0.1 * 3, 1e300 * 3] and b["d"] == [-3.0, 2.5e-5 * 3], got
        assert a["i"] == 2 ** 53 + 2 and b["i"] == -(2 ** 63) + 1
        assert a["s"] == rows[0]["s"] + "!" and base64.b64decode(b["s"]["b64"]) == b"\xff\x00!"
        assert base64.b64decode(a["s_bytes"]["b64"]).decode() == rows[0]["s"]
        assert a["b"] is False and b["b"] is True and a["u"] == [[2, 3]] and b["u"] == [[255, 1]]
        assert np.float16(a["h"][0]) == np.float16(0.1) and a["h"][1] == math.inf
        columns = {k: [r[k] for r in rows] for k in rows[0]}
        code, cols = ask(s.rest, "POST", url, {"inputs": columns})
        assert code == 200 and cols["outputs"] == {k: [a[k], b[k]] for k in a}, cols

        def wrong(body, *words):
            code, got = ask(s.rest, "POST", url, body)
            assert code == 400 and all(w in got["error"] for w in words), (code, got)

        def row(**changed):
            return {"instances": [{**rows[0], **changed}]}

        wrong(row(i=1.5), "element: 0", "key: i", "int64")
        wrong(row(i=2 ** 63), "key: i")
        wrong(row(u=[[256, 0]]), "key: u", "uint8")
        wrong(row(b="yes"), "key: b", "String", "bool")
        wrong(row(s=7), "key: s")
        wrong(row(s={"b64": "*"}), "key: s", "base64")
        wrong(row(d=[1, [2]]), "key: d")
        wrong(row(z=1), "key: z", "does not have named input")
        wrong({"instances": [rows[0], {**rows[0], "d": [1.0]}]}, "element: 1", "key: d", "Expecting shape [2]")
        wrong({"instances": [{k: rows[0][k] for k in "dis"}]}, "keys must be equal to: b,d,i,s,u")
        wrong({"instances": [1, 2]}, "expecting list of objects")
        wrong({"inputs": {"d": [[1, 2]]}}, "Missing named input: b")
        wrong({"inputs": [1]}, "expecting an object")
        wrong({**row(), "signature_name": "other"}, "other")
        wrong({**row(), "signature_name": 3}, "signature_name")


@in_folder
def test_wrong_json(folder):
    half_plus(folder, 1)
    with serve(folder, "--rest_api_max_request_bytes=1000000") as s:
        url = "/v1/models/default:predict"
        for body, words in (("", "The document is empty"), ("{", "offset: 1"), ("[]", "is not object"), ("{}", "Missing"),
                            ('{"instances": []}', "No values"), ('{"instances": 1}', "list/array"),
                            ('{"instances": [1], "inputs": [1]}', "only one of"), ('{"instances": [1,]}', "offset"),
                            ('{"instances": [01]}', "offset"), ('{"instances": ["\\x"]}', "escape"),
                            ('{"instances": [1]} x', "followed"), ('{"instances": ["a]}', "closing"),
                            ('{"instances": [[1], [2]]}', "input 'x'"), ('{"instances": [16777217]}', "loss of precision"),
                            ('{"instances": [1e39]}', "loss of precision"),
                            ('{"instances": [1e400]}', "too big"), ('{"instances": ["\\ud800"]}', "surrogate"), ("[" * 100000, "deeply"),
                            ('{"a":' * 70 + "1" + "}" * 70, "deeply"),
                            ('{"inputs": ' + "[" * 40 + "1" + "]" * 40 + "}", "nested"),
                            ('{"inputs": [' + "[1," * 2 + "1]]" + ", [1]" * 3 + "]}", "")):
            code, got = ask(s.rest, "POST", url, body)
            assert code == 400 and words in got["error"], (body[:60], code, got)
        # What the first element promises the others must have: no memory is taken on its word.
        code, got = ask(s.rest, "POST", url, {"instances": [[0] * 100000] + [0] * 100000})
        assert code == 400, got
        # An input that a row names twice is not kept for ever.
        twice = '{"instances": [{"x": [%s0], "x": [0]}]}' % ("0," * 450000)
        times, kept = (200, 300 << 20) if cluster.sanitized() else (60, 60 << 20)  # 256 MiB: what a sanitizer keeps
        before = resident(s)
        for _ in range(times):  # 1.8 MB each
            code, got = ask(s.rest, "POST", url, twice)
            assert code == 400 and "given twice" in got["error"], got
        assert resident(s) - before < kept, (before, resident(s))
        assert ask(s.rest, "POST", url, "x" * 2000000)[0] == 413
        assert ask(s.rest, "POST", url, chunks=[b"x" * 100000] * 20)[0] == 413
        assert ask(s.rest, "POST", url, gzip.compress(b" " * 5000000), {"Content-Encoding": "gzip"})[0] == 413
        assert ask(s.rest, "POST", url, b"no gzip", {"Content-Encoding": "gzip"})[0] == 400
        for method, path in (("GET", url), ("POST", "/v1/models/default"), ("POST", "/v1/models/:predict"),
                             ("POST", "/v1/models/default/versions/x:predict"), ("POST", "/v1/models/default:explain"),
                             ("DELETE", "/v1/models/default"), ("POST", "/v1/models/default/versions/1/x:predict")):
            code, got = ask(s.rest, method, path, '{"instances": [1]}')
            assert code == 400 and ("/x:" not in path or "x to numeric" in got["error"] or "/1/x" in path), (method, path, code, got)
        assert ask(s.rest, "GET", "/")[0] == 404
        assert ask(s.rest, "POST", "/v1/models/none:predict", {"instances": [1]})[0] == 404
        assert ask(s.rest, "POST", url, {"instances": [1]})[0] == 200 and s.alive()


@in_folder
def test_encodings(folder):
    half_plus(folder, 1)
    with serve(folder) as s:
        url, body = "/v1/models/default:predict", b'{"instances": [1.0, 2.0]}'
        want = 200, {"predictions": [2.5, 3.0]}
        assert ask(s.rest, "POST", url, chunks=[body[:5], body[5:6], body[6:]]) == want
        assert ask(s.rest, "POST", url, chunks=[body] + [b" "] * 5000) == want
        assert ask(s.rest, "POST", url, gzip.compress(body), {"Content-Encoding": "gzip"}) == want
        c = http.client.HTTPConnection("localhost", s.rest)  # one connection, many requests
        for _ in range(20):
            c.request("POST", url, body)
            assert json.loads(c.getresponse().read()) == want[1]
        head = f"POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        got = raw(s.rest, (head + body) * 5)  # one behind the other
        assert got.count(b"200 OK") == 5 and got.count(b"predictions") == 5, got
        got = raw(s.rest, head.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n") + body)
        assert b"100 Continue" in got and b"200 OK" in got
        got = raw(s.rest, head.replace(b"1.1", b"1.0") + body)
        assert b"200 OK" in got and b"Connection: close" in got


@in_folder
def test_hostile_heads(folder):
    half_plus(folder, 1)
    with serve(folder) as s:
        post = b"POST /v1/models/default:predict HTTP/1.1\r\n"
        for data, code in ((b"\x00\x01\x02\r\n\r\n", b"400"), (b"GET / HTTP/2.0\r\n\r\n", b"505"),
                           (b"GET  / HTTP/1.1\r\n\r\n", b"400"), (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", b"431"),
                           (post + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"400"),
                           (post + b"Content-Length: -1\r\n\r\n", b"400"),
                           (post + b"Content-Length: 99999999999999999999\r\n\r\n", b"400"),
                           (post + b"Content-Length: 999999999999\r\n\r\n", b"413"),
                           (post + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
                           (post + b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
                           (post + b"Content-Encoding: br\r\n\r\n", b"415"),
                           (post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
                           (post + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", b"400"),
                           (post + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", b"400"),
                           (post + b"Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n", b"400"),
                           (post + b"Transfer-Encoding: chunked\r\n\r\n1;\nx\r\n0\r\n\r\n", b"400"),
                           (post + b"Transfer-Encoding: chunked\r\n\r\n1\ra\r\nx\r\n0\r\n\r\n", b"400"),
                           (post.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
                           (post + b"A : b\r\n\r\n", b"400"), (post + b" a: b\r\n\r\n", b"400"),
                           (b"GET /%zz HTTP/1.1\r\nConnection: close\r\n\r\n", b"400")):
            got = raw(s.rest, data)
            assert got.startswith(b"HTTP/1.1 " + code), (data[:80], got[:200])
        got = raw(s.rest, b"HEAD /v1/models/default HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")  # no body to the first
        assert got.split(b"\r\n\r\n")[1].startswith(b"HTTP/1.1 404"), got
        for _ in range(200):
            raw(s.rest, os.urandom(300))
        slow = [socket.create_connection(("localhost", s.rest)) for _ in range(200)]
        for c in slow:
            c.sendall(post + b"Content-Length: 100\r\n\r\n{")
        assert ask(s.rest, "POST", "/v1/models/default:predict", {"instances": [1]})[0] == 200
        for c in slow:
            c.close()
        assert s.alive() and s.stop() == 0


@in_folder
def test_slow_requests_end(folder):
    half_plus(folder, 1)
    with serve(folder, "--request_timeout=1") as s:
        with socket.create_connection(("localhost", s.rest), timeout=cluster.PATIENCE) as c:
            c.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
            assert c.recv(100) == b""
        with socket.create_connection(("localhost", s.rest), timeout=0.2) as c:  # byte by byte does not help
            c.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n{")

            def ended():
                try:
                    c.sendall(b" ")
                    return c.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            cluster.until(ended)


@in_folder
def test_an_address_has_its_share(folder):
    """Bodies that do not come take neither the places of clients from elsewhere, nor those of their own for long."""
    half_plus(folder, 1)
    url, body = "/v1/models/default:predict", {"instances": [1.0]}
    with serve(folder, "--max_connections=40") as s:
        slow = [socket.create_connection(("127.0.0.1", s.rest), source_address=("127.0.0.2", 0)) for _ in range(40)]
        for c in slow:
            try:
                c.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
            except OSError:
                pass  # the last of them were not taken
        assert ask(s.rest, "POST", url, body)[0] == 200
        Client(s.port).predict({"x": np.ones(1, np.float32)})

        def served():
            c = http.client.HTTPConnection("127.0.0.1", s.rest, cluster.PATIENCE, source_address=("127.0.0.2", 0))
            try:
                c.request("POST", url, json.dumps(body))
                return c.getresponse().status == 200
            except OSError:
                return False
            finally:
                c.close()

        cluster.until(served)
        for c in slow:
            c.close()


@in_folder
def test_who_goes_away_is_not_computed_for(folder):
    """A reset ends what was asked over it, and so does --rest_api_timeout_in_ms; a client that has said all waits on."""
    endless(folder)
    request = b'POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 20\r\n\r\n{"instances": [1.0]}'
    with serve(folder) as s:
        c = socket.create_connection(("localhost", s.rest))
        c.sendall(request)
        cluster.until(s.busy)
        c.shutdown(socket.SHUT_WR)
        cluster.until(s.busy)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        cluster.until(lambda: not s.busy())
    with serve(folder, "--rest_api_timeout_in_ms=1000", "--grace_seconds=0") as s:
        assert b"HTTP/1.1 504 " in raw(s.rest, request)
        c = socket.create_connection(("localhost", s.rest))
        c.sendall(request)
        cluster.until(s.busy)
        assert s.stop() == 0
        c.close()


@in_folder
def test_answers_are_counted(folder):
    """What a few bytes make a model answer has its room beside what requests hold, while it is made and written."""
    zeros(folder)
    url = "/v1/models/default:predict"
    with serve(folder, "--max_held_bytes=40000000") as s:
        assert len(ask(s.rest, "POST", url, {"instances": [1000000]})[1]["predictions"][0]) == 1000000
        for n in 5000000, 10000000:  # there is room for the tensor, not for its text; for neither
            code, got = ask(s.rest, "POST", url, {"instances": [n]})
            assert code == 429 and "the answer: there is no room" in got["error"], (n, code, str(got)[:200])
        code, got = ask(s.rest, "POST", url, gzip.compress(b" " * 60000000), {"Content-Encoding": "gzip"})
        assert code == 503 and "--max_held_bytes" in got["error"], (code, got)  # later there may be room for it
        assert ask(s.rest, "POST", url, {"instances": [1000000]})[0] == 200


@in_folder
def test_handlers_have_shares(folder):
    """Requests that do not end take the handlers of nobody who comes from elsewhere."""
    endless(folder)
    request = b'POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 20\r\n\r\n{"instances": [1.0]}'
    with serve(folder, "--rest_api_num_threads=2", "--max_handlers=3") as s:
        many = [socket.create_connection(("127.0.0.1", s.rest), source_address=("127.0.0.2", 0)) for _ in range(20)]
        for c in many:
            c.sendall(request)
        cluster.until(s.busy)
        for _ in range(3):
            assert ask(s.rest, "GET", "/v1/models/default")[0] == 200
        for c in many:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
        cluster.until(lambda: not s.busy())


@in_folder
def test_the_end_is_everybodys(folder):
    """While a body is waited for at the end nobody is let in, by gRPC neither."""
    half_plus(folder, 1)
    with serve(folder, "--grace_seconds=5") as s:
        with socket.create_connection(("localhost", s.rest)) as c:
            c.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
            assert ask(s.rest, "GET", "/v1/models/default")[0] == 200
            s.process.terminate()

            def deaf():
                try:
                    socket.create_connection(("localhost", s.port)).close()
                except OSError:
                    return True
                return False

            cluster.until(deaf)
            assert s.alive() and s.stop() == 0


@in_folder
def test_tls(folder):
    """REST by TLS: many requests on one connection, large ones, clients with and without a certificate, plain text."""
    authority = certificates.Authority(folder)
    mine, client = authority.sign("server", "DNS:localhost"), authority.sign("client", "DNS:client")
    path = os.path.join(folder, "m")
    os.makedirs(path)
    half_plus(path, 1)
    url, flags = "/v1/models/default:predict", ["--rest_api_tls", f"--tls_cert={mine[0]}", f"--tls_key={mine[1]}"]
    many = np.random.default_rng(1).normal(size=300000).astype(np.float32)

    def ask_all(context, port):
        c = http.client.HTTPSConnection("localhost", port, timeout=cluster.PATIENCE, context=context)
        for values in [1.0, 2.0], many.tolist(), [5.0]:
            c.request("POST", url, json.dumps({"instances": values}))
            got = json.loads(c.getresponse().read())
            assert "predictions" in got, str(got)[:300]
            got = got["predictions"]
            assert np.array_equal(np.array(got, np.float32), np.array(values, np.float32) / 2 + 2)
        c.close()

    anybody = ssl.create_default_context(cafile=authority.ca)
    named = ssl.create_default_context(cafile=authority.ca)
    named.load_cert_chain(*client)
    with serve(path, *flags) as s:
        ask_all(anybody, s.rest)
        try:
            assert ask(s.rest, "GET", "/v1/models/default")[0] != 200
        except (OSError, http.client.HTTPException):
            pass
        idle = [socket.create_connection(("localhost", s.rest)) for _ in range(20)]
        ask_all(anybody, s.rest)
        for c in idle:
            c.close()
    with serve(path, *flags, f"--tls_ca={authority.ca}") as s:
        ask_all(named, s.rest)
        try:
            ask_all(anybody, s.rest)
        except OSError:
            pass
        else:
            raise AssertionError("a client without a certificate is let in")


@in_folder
def test_status_metadata_metrics(folder):
    half_plus(folder, 3)
    with serve(folder) as s:
        code, got = ask(s.rest, "GET", "/v1/models/default")
        assert code == 200 and got == {"model_version_status": [
            {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]}, got
        assert ask(s.rest, "GET", "/v1/models/default/versions/3")[1] == got
        assert ask(s.rest, "GET", "/v1/models/default/versions/4")[0] == 404
        code, got = ask(s.rest, "GET", "/v1/models/default/metadata")
        assert code == 200 and got["model_spec"] == {"name": "default", "signature_name": "", "version": "3"}
        sig = got["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert sig["inputs"]["x"]["dtype"] == "DT_FLOAT" and sig["method_name"] == "tensorflow/serving/predict"
        assert sig["inputs"]["x"]["tensor_shape"] == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
        for _ in range(3):
            ask(s.rest, "POST", "/v1/models/default:predict", {"instances": [1]})
        ask(s.rest, "POST", "/v1/models/default:predict", {"instances": ["a"]})
        code, got = ask(s.rest, "GET", "/monitoring/prometheus/metrics")
        assert code == 200 and ':tensorflow:serving:request_count{model_name="default",status="OK"} 3' in got, got
        assert ':tensorflow:serving:request_count{model_name="default",status="INVALID_ARGUMENT"} 1' in got, got
        assert ':tensorflow:serving:request_latency_count{model_name="default",API="Predict",entrypoint="REST"} 3' in got


@in_folder
def test_metadata_of_an_init_op(folder):
    """An op has no type: what clients parse says so with a word of DataType's."""
    from google.protobuf import json_format
    from tensorflow_serving.apis import get_model_metadata_pb2
    m = Several()
    tf.saved_model.save(m, os.path.join(folder, "1"), signatures=m.run)
    with serve(folder) as s:
        told = ask(s.rest, "GET", "/v1/models/default/metadata")[1]["metadata"]["signature_def"]
    sigs = json_format.ParseDict(told, get_model_metadata_pb2.SignatureDefMap()).signature_def
    assert sigs["serving_default"].inputs["d"].dtype == tf.float64.as_datatype_enum
    init = told["signature_def"]["__saved_model_init_op"]["outputs"]["__saved_model_init_op"]
    assert init["dtype"] == "DT_INVALID", init


@in_folder
def test_classify_and_regress(folder):
    examples_model(folder)
    with serve(folder, "--max_held_bytes=1000000000") as s:
        classify, regress = "/v1/models/default:classify", "/v1/models/default/versions/1:regress"
        code, got = ask(s.rest, "POST", classify, {"examples": [{"x": 0.0}, {"x": [1.5]}]})
        assert code == 200 and [[c[0] for c in r] for r in got["results"]] == [["pos", "neg"]] * 2, got
        assert np.allclose([r[0][1] for r in got["results"]], [0.5, 1 / (1 + math.exp(-3))])
        assert ask(s.rest, "POST", regress, {"signature_name": "value", "context": {"bias": 1.0},
                                             "examples": [{"x": 0.5}, {"x": 1.5}]}) == (200, {"results": [3.0, 5.0]})
        # A context is put before each example: what comes of it is looked at first.
        code, got = ask(s.rest, "POST", classify, {"context": {"a": "a" * 1000000}, "examples": [{"x": 0.0}] * 40000})
        assert code == 429 and "--max_held_bytes" in got["error"], got
        for body, words in (({"examples": []}, "empty array"), ({}, "'examples'"), ({"examples": [1]}, "JSON object"),
                            ({"examples": [{"x": None}]}, "Feature: x"), ({"examples": [{"x": [1.0, "a"]}]}, "feature: x"),
                            ({"examples": [{"x": {"a": 1}}]}, "Feature: x"), ({"examples": [{"x": 2 ** 63}]}, "uint64"),
                            ({"examples": [{}]}, "x"), ({"examples": [{"x": "a"}]}, "x"),
                            ({"examples": [{"x": 0.0}], "signature_name": "value"}, "method_name")):
            code, got = ask(s.rest, "POST", classify, body)
            assert code == 400 and words in got["error"], (body, code, got)


@in_folder
def test_swap_under_load(folder):
    half_plus(folder, 1, add=1.0)
    half_plus(folder, 2, add=2.0)
    os.rename(os.path.join(folder, "2"), os.path.join(folder, "later"))
    with serve(folder) as s:
        wrong, seen, over = [], set(), threading.Event()

        def run():
            c = http.client.HTTPConnection("localhost", s.rest, timeout=cluster.PATIENCE)
            while not over.is_set():
                c.request("POST", "/v1/models/default:predict", '{"instances": [0]}')
                r = c.getresponse()
                got = json.loads(r.read())
                seen.update(got.get("predictions", []))
                if r.status != 200:
                    wrong.append(got)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for t in threads:
            t.start()
        cluster.until(lambda: 1.0 in seen)
        os.rename(os.path.join(folder, "later"), os.path.join(folder, "2"))
        cluster.until(lambda: 2.0 in seen)
        time.sleep(0.5)
        over.set()
        for t in threads:
            t.join()
        assert not wrong and seen == {1.0, 2.0}, (wrong[:2], seen)


if __name__ == "__main__":
    tap.main(globals())
