#!/usr/bin/env python3
"""The libraries that the guide names, node and shell, on real input.

test: timeout=1200 beside=yes
"""
import random

from hutchlib import case, client, equal, main

# On a soft host this run takes tens of seconds: every page that the libraries
# touch for the first time is a guest kernel fault of milliseconds.
TIMEOUT_MS = 600000

ALL = r"""
import io, json

def csv_part(text):
    import pandas as pd
    df = pd.read_csv(io.StringIO(text))
    g = df.groupby("city")["units"].agg(["sum", "mean", "count"])
    return len(df), {k: [int(r["sum"]), round(r["mean"], 6), int(r["count"])]
                     for k, r in g.iterrows()}, df

def parquet_part(df):
    import pyarrow as pa, pyarrow.parquet as pq
    table = pa.Table.from_pandas(df, preserve_index=False)
    pq.write_table(table, "units.parquet")
    back = pq.read_table("units.parquet").to_pandas()
    return [back.equals(df), table.num_rows]

def xlsx_part():
    import openpyxl
    b = openpyxl.Workbook()
    rows = [["name", "n"], ["a", 1], ["b", 2.5]]
    for r in rows:
        b.active.append(r)
    b.save("t.xlsx")
    w = openpyxl.load_workbook("t.xlsx").active
    return [list(r) for r in w.iter_rows(values_only=True)] == rows

def pdf_part():
    import pdfplumber
    stream = b"BT /F1 24 Tf 72 700 Td (Invoice 4711 total 99.50) Tj ET"
    objs = [b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            b"/Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    out, at = b"%PDF-1.4\n", []
    for i, o in enumerate(objs, 1):
        at.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (i, o)
    x = len(out)
    out += b"xref\n0 6\n0000000000 65535 f \n"
    out += b"".join(b"%010d 00000 n \n" % a for a in at)
    out += b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % x
    with pdfplumber.open(io.BytesIO(out)) as pdf:
        return [len(pdf.pages), pdf.pages[0].extract_text()]

def small_parts():
    import regex, jsonschema, dateutil.parser, numpy as np
    try:
        jsonschema.validate({"n": "x"}, {"properties": {"n": {
            "type": "integer"}}})
        bad = "accepted"
    except jsonschema.ValidationError as e:
        bad = e.message
    return {"regex": regex.findall(r"\p{Lu}\w+", "Über den Öl Markt"),
            "jsonschema": bad,
            "dateutil": dateutil.parser.parse("3 Feb 2025 4pm").isoformat(),
            "numpy": float(np.linalg.det(np.array([[2., 1.], [1., 3.]])))}

def run(input, config):
    n, groups, df = csv_part(input)
    return {"rows": n, "groups": groups, "parquet": parquet_part(df),
            "xlsx": xlsx_part(), "pdf": pdf_part(), **small_parts()}
"""


@case("LBB-100: the eight libraries in one run, CSV of 10,000 rows")
def libraries():
    rng = random.Random(7)
    rows = [(f"c{rng.randrange(5)}", rng.randrange(1000))
            for _ in range(10000)]
    text = "city,units\n" + "".join(f"{c},{u}\n" for c, u in rows)
    want = {}
    for c, u in rows:
        want.setdefault(c, []).append(u)
    r = client().run(ALL, input=text, timeout_ms=TIMEOUT_MS)
    assert r.ok, (r, r.logs("stderr").decode())
    got = r.result
    equal(got["rows"], 10000)
    equal(got["groups"], {c: [sum(u), round(sum(u) / len(u), 6), len(u)]
                          for c, u in sorted(want.items())})
    equal(got["parquet"], [True, 10000])
    equal(got["xlsx"], True)
    equal(got["pdf"], [1, "Invoice 4711 total 99.50"])
    equal(got["regex"], ["Über", "Öl", "Markt"])
    equal(got["jsonschema"], "'x' is not of type 'integer'")
    equal(got["dateutil"], "2025-02-03T16:00:00")
    assert abs(got["numpy"] - 5.0) < 1e-12, got


@case("LBB-93 LBB-101: a node run, version 24, sync and async")
def node():
    r = client().run("function run(input, config) {\n"
                     "  return { sum: input.reduce((a, b) => a + b, 0),\n"
                     "           version: process.version,\n"
                     "           config }; }",
                     template="lbb/node", input=[1, 2, 3],
                     config={"unit": "cm"}, timeout_ms=120000)
    assert r.ok, (r, r.logs("stderr"))
    equal(r.result["sum"], 6)
    equal(r.result["config"], {"unit": "cm"})
    assert r.result["version"].startswith("v24."), r.result
    r = client().run("exports.run = async (input) => {\n"
                     "  await new Promise(r => setTimeout(r, 20));\n"
                     "  console.log('hello'); return input + 1; }",
                     template="lbb/node", input=41, timeout_ms=120000)
    assert r.ok, (r, r.logs("stderr"))
    equal(r.result, 42)
    equal(r.logs(), b"hello\n")


@case("LBB-101: an exception in node: exit code 1, stack in the output")
def node_error():
    r = client().run("function run() { throw new Error('no good'); }",
                     template="lbb/node", timeout_ms=120000)
    equal((r.ok, r.exit_code, r.result), (False, 1, None))
    assert b"no good" in r.logs("stderr"), r.logs("stderr")


@case("LBB-93 LBB-102: a shell run with jq; input on stdin, result from a "
      "file")
def shell():
    r = client().run("jq -c '{n: length, max: max}' > \"$RUN_RESULT\"\n"
                     "echo to-stdout\necho to-stderr >&2",
                     template="lbb/shell", input=[3, 9, 4],
                     timeout_ms=120000)
    assert r.ok, (r, r.logs("stderr"))
    equal(r.result, {"n": 3, "max": 9})
    equal(r.logs(), b"to-stdout\n")
    equal(r.logs("stderr"), b"to-stderr\n")


@case("LBB-102: the exit status of the script is that of the run")
def shell_exit():
    r = client().run("exit 7", template="lbb/shell", timeout_ms=120000)
    equal((r.ok, r.exit_code, r.status), (False, 7, "failed"))
    r = client().run("ls /nowhere", template="lbb/shell", timeout_ms=120000)
    equal((r.ok, r.exit_code), (False, 2))
    assert b"/nowhere" in r.logs("stderr")


main()
