"""One small use of each library that the python image promises."""
import io

import dateutil.parser
import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pdfplumber
import pyarrow as pa
import pyarrow.parquet as pq
import regex

frame = pd.DataFrame({"a": np.arange(5), "b": list("xyzzy")})
sheet = io.BytesIO()
frame.to_excel(sheet, index=False)
assert pd.read_excel(io.BytesIO(sheet.getvalue())).a.sum() == 10
assert openpyxl.load_workbook(sheet).active["B2"].value == "x"

parquet = io.BytesIO()
frame.to_parquet(parquet)
assert pq.read_table(io.BytesIO(parquet.getvalue())).num_rows == 5
assert pa.compute.sum(pa.array([1, 2, 3])).as_py() == 6

jsonschema.validate({"a": 1}, {"type": "object"})
assert dateutil.parser.parse("2024-02-03").day == 3
assert regex.findall(r"\p{L}+", "ab 1 é") == ["ab", "é"]
assert abs(np.linalg.inv(np.eye(3) * 2)[0, 0] - 0.5) < 1e-9
assert pd.Timestamp("2024-01-01", tz="Europe/Paris").tzinfo is not None
assert frame.groupby("b").a.sum().to_dict() == {"x": 0, "y": 5, "z": 5}

# A PDF of one page with one word, as small as one can be
pdf = [b"<< /Type /Catalog /Pages 2 0 R >>",
       b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
       b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R"
       b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1"
       b" /BaseFont /Helvetica >> >> >> >>",
       b"<< /Length 40 >>\nstream\nBT /F1 24 Tf 20 100 Td (hutch) Tj ET     \n"
       b"endstream"]
data, offsets = b"%PDF-1.4\n", []
for number, body in enumerate(pdf, 1):
    offsets.append(len(data))
    data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
start = len(data)
data += b"xref\n0 5\n0000000000 65535 f \n"
data += b"".join(b"%010d 00000 n \n" % x for x in offsets)
data += b"trailer << /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % start
with pdfplumber.open(io.BytesIO(data)) as doc:
    assert doc.pages[0].extract_text() == "hutch", doc.pages[0].extract_text()
print("ok")
