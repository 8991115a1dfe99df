"""Rows of the bench: kept, printed as a table, written as CSV."""

import csv


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Figures:
    FIELDS = ("measure", "who", "n", "unit", "p50", "p99", "min", "exits",
              "guest_kernel_instructions", "goal")

    def __init__(self):
        self.rows = []

    def add(self, measure, who, values, unit, exits=None, instructions=None,
            goal=""):
        row = {
            "measure": measure, "who": who, "n": len(values), "unit": unit,
            "p50": round(percentile(values, 0.5), 2),
            "p99": round(percentile(values, 0.99), 2),
            "min": round(min(values), 2),
            "exits": "" if exits is None else exits,
            "guest_kernel_instructions":
                "" if instructions is None else instructions,
            "goal": goal,
        }
        self.rows.append(row)
        print(self.line(row), flush=True)

    @staticmethod
    def head():
        return (f"{'measure':<44} {'who':<10} {'n':>4} {'p50':>10} "
                f"{'p99':>10} {'min':>10} {'unit':<5} {'exits':>8} "
                f"{'guest insn':>11}  goal")

    @staticmethod
    def line(r):
        return (f"{r['measure']:<44} {r['who']:<10} {r['n']:>4} "
                f"{r['p50']:>10} {r['p99']:>10} {r['min']:>10} "
                f"{r['unit']:<5} {r['exits']:>8} "
                f"{r['guest_kernel_instructions']:>11}  {r['goal']}")

    def write_csv(self, path):
        with open(path, "w", newline="") as out:
            writer = csv.DictWriter(out, self.FIELDS)
            writer.writeheader()
            writer.writerows(self.rows)
