"""Validates the reports on every golden configuration against schemas.

    schemas.py GTPLAN SOURCE_ROOT

The schemas of tests/schemas hold what gtplan writes, more strictly than the published ones. The published ones are
validated against, too, when GTPLAN_SCHEMAS names a folder that has them: sarif-schema-2.1.0.json (OASIS) and
junit-10.xsd (Jenkins xUnit plugin). Prints TAP.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("1..0 # SKIP python3-jsonschema is not installed")
    raise SystemExit(0)

gtplan, root = sys.argv[1], pathlib.Path(sys.argv[2])
schemas = root / "tests" / "schemas"
published = os.environ.get("GTPLAN_SCHEMAS")
hostile = '"a%b::c,d=\\u0001<&\\"\'\\u202e]]>\\nx": "😀"\nnum_layers: 4\ntensor_parallel_num_weight_shards: 2\n'
count = 0


def tap(name, problems):
    global count
    count += 1
    print(f"{'not ok' if problems else 'ok'} {count} - {name}")
    for problem in problems[:5]:
        print("#", problem)


def skip(name, reason):
    global count
    count += 1
    print(f"ok {count} - {name} # SKIP {reason}")


def json_problems(schema, document):
    validator = jsonschema.Draft7Validator(json.loads(schema.read_text()))
    return [f"{list(error.path)}: {error.message[:200]}" for error in validator.iter_errors(document)]


def xml_problems(flag, schema, text):
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        file.write(text)
        file.flush()
        result = subprocess.run(["xmllint", "--noout", flag, schema, file.name], capture_output=True, text=True)
    return result.stderr.splitlines() if result.returncode else []


with tempfile.TemporaryDirectory() as folder:
    strange = pathlib.Path(folder) / "we%ird: na,me<&'.yaml"
    strange.write_text(hostile)
    report = {
        form: subprocess.run(
            [gtplan, "check", "--format", form, root / "tests/cli/golden", strange], capture_output=True, check=False
        ).stdout
        for form in ("sarif", "junit", "github")
    }

sarif = json.loads(report["sarif"])
tap("SARIF against the schema of what gtplan writes", json_problems(schemas / "sarif.json", sarif))
fixes = sum("fixes" in result for result in sarif["runs"][0]["results"])
tap("SARIF offers fixes", [] if fixes >= 5 else [f"{fixes} results have a fix"])
tap("JUnit against the grammar of what gtplan writes", xml_problems("--relaxng", schemas / "junit.rng", report["junit"]))
annotation = re.compile(
    r"::(error|warning|notice) file=[^,:\r\n]+(,line=\d+,endLine=\d+(,col=\d+,endColumn=\d+)?)?,title=[^,:\r\n]+::[^\r\n]+"
)
lines = report["github"].decode().splitlines()
tap("GitHub annotations", [line for line in lines if not annotation.fullmatch(line)] if lines else ["no line"])
if published:
    folder = pathlib.Path(published)
    tap("SARIF against the published schema", json_problems(folder / "sarif-schema-2.1.0.json", sarif))
    tap("JUnit against the published schema", xml_problems("--schema", folder / "junit-10.xsd", report["junit"]))
else:
    skip("SARIF and JUnit against the published schemas", "GTPLAN_SCHEMAS names no folder with them")
print(f"1..{count}")
