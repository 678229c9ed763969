"""What the rounds amount to, and how it is printed."""
import statistics

# ---- the figures ---------------------------------------------------------------------------------------------------


def median(values):
    return statistics.median(values) if values else None


def against(ours, other):
    """Two {round: value}: their medians, the medians' ratio, and the spread of the pairs' ratios."""
    ratios = [other[index] / ours[index] for index in ours if index in other]
    a, b = median(ours.values()), median(other.values())
    return dict(ours=a, other=b, times=b / a if ratios else None, least=min(ratios, default=None),
                most=max(ratios, default=None))


def compare(pair, row, field, other="torch"):
    return against(pair.values("ours", row, field), pair.values(other, row, field))


def attention_row(pair, row):
    rate, sgemm = pair.values("ours", row, "fwd_bwd_gflops"), pair.values("ours", row, "sgemm_gflops")
    return dict(forward=compare(pair, row, "fwd_ms"), both=compare(pair, row, "fwd_bwd_ms"),
                share_of_sgemm=median([rate[index] / sgemm[index] for index in rate]),
                against_composed=compare(pair, row, "fwd_bwd_ms", "composed"))


def training_row(pair, row):
    def ours(field):
        return median(pair.values("ours", row, field).values())
    step, products = ours("step_ms"), ours("products_at_sgemm_rate_ms")
    result = dict(step=compare(pair, row, "step_ms"), page_faults_per_step=ours("page_faults_per_step"),
                  system_allocations_per_step=ours("system_allocations_per_step"),
                  step_over_products=step / products if step else None)
    if "compiled" in pair.sides:
        result["against_compiled"] = compare(pair, row, "step_ms", "compiled")
    return result


def ops_row(pair, row):
    kind, _, size = row.partition("/")
    if kind == "elementwise_loops":
        return None
    if kind == "elementwise":
        return dict(against_loops=against(pair.values("ours", row, "ms"),
                                          pair.values("ours", "elementwise_loops/" + size, "ms")))
    return dict(op=compare(pair, row, "ms"))


def forms_row(pair, row):
    return dict(both=compare(pair, row, "fwd_bwd_ms"),
                against_plain=median(pair.values("ours", row, "ratio").values()),
                torch_against_plain=median(pair.values("torch", row, "ratio").values()))


def decode_row(pair, row):
    token, read = pair.values("ours", row, "token_ms"), pair.values("ours", row, "read_ms")
    return dict(token=compare(pair, row, "token_ms"), prefill=compare(pair, row, "prefill_ms"),
                share_of_bandwidth=median([read[index] / token[index] for index in token]))


def results(pairs):
    """Every row of the table, as --json prints it; times are in ms."""
    of, found = dict(attention=attention_row, training=training_row, ops=ops_row, forms=forms_row,
                     decode=decode_row), []
    for pair in pairs:
        for row in pair.row_names():
            figures = of[pair.group](pair, row)
            if figures:
                name = pair.name if pair.group == "training" else row
                found.append(dict(group=pair.group, name=name, threads=pair.threads, under_load=row in pair.loaded,
                                  **figures))
    return found


# ---- the text ------------------------------------------------------------------------------------------------------


def figure(x):
    """Four digits or so."""
    return "-" if x is None else f"{x:.{max(0, 4 - len(str(int(x))))}f}"


def ratio(x):
    return "-" if x is None else f"{x:.2f}"


def percent(x):
    return "-" if x is None else f"{100 * x:.0f} %"


def rival(c, scale=1):
    spread = "-" if c["times"] is None else f"{c['least']:.2f}..{c['most']:.2f}"
    return [figure(c["other"] and c["other"] * scale), ratio(c["times"]), spread]


def ours(c, scale=1):
    return figure(c["ours"] and c["ours"] * scale)


def show(title, heads, rows):
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(heads, *rows)]
    print("\n" + title)
    for line in [heads, *rows]:
        print("  ".join(cell.rjust(width) if i else cell.ljust(width)
                        for i, (cell, width) in enumerate(zip(line, widths))))


def show_attention(rows, torch):
    head = ["torch", "x", "spread"] if torch else []
    show("attention, causal, batch x heads x length x width, ms; sgemm: share of its rate; composed: its time / ours",
         ["shape", "threads", "forward", *head, "fwd+bwd", *head, "sgemm", "composed"],
         [[*r["head"], ours(r["forward"]), *(rival(r["forward"]) if torch else []), ours(r["both"]),
           *(rival(r["both"]) if torch else []), percent(r["share_of_sgemm"]), ratio(r["against_composed"]["times"])]
          for r in rows])


def show_training(rows, torch):
    compiled = any("against_compiled" in r for r in rows)
    show("training, ms, page faults, system allocations a step; products: the step / its products at sgemm's rate",
         ["model", "threads", "ours", *(["torch", "x", "spread"] if torch else []),
          *(["compiled", "x", "spread"] if compiled else []), "faults", "allocs", "products"],
         [[*r["head"], ours(r["step"]), *(rival(r["step"]) if torch else []),
           *(rival(r["against_compiled"]) if compiled else []), figure(r["page_faults_per_step"]),
           figure(r["system_allocations_per_step"]), ratio(r["step_over_products"])] for r in rows])


def show_ops(rows, torch):
    def scale(r):  # scalar_op is a chain of 1000: ms to ns an op
        return 1e3 if r["name"] == "scalar_op" else 1
    show("single ops, forward and backward, ms; scalar_op: ns an op",
         ["op", "threads", "ours", *(["torch", "x", "spread"] if torch else [])],
         [[*r["head"], ours(r["op"], scale(r)), *(rival(r["op"], scale(r)) if torch else [])]
          for r in rows if "op" in r])
    show("a * b + a on n numbers, us, beside plain loops", ["n", "threads", "ours", "loops", "x", "spread"],
         [[r["head"][0].split("/")[1], r["head"][1], ours(r["against_loops"], 1e3), *rival(r["against_loops"], 1e3)]
          for r in rows if "against_loops" in r])


def show_forms(rows, torch):
    show("forms of attention, 1x8x4096x64, forward and backward, ms; plain = 1: to the plain causal kernel of that side",
         ["form", "threads", "ours", "plain = 1", *(["torch", "x", "spread", "plain = 1"] if torch else [])],
         [[*r["head"], ours(r["both"]), ratio(r["against_plain"]),
           *([*rival(r["both"]), ratio(r["torch_against_plain"])] if torch else [])] for r in rows])


def show_decode(rows, torch):
    show("decoding with a cache behind 512 tokens, ms a token, and these 512 in one pass; bandwidth: reading all weights "
         "once at the memory's rate / the token's time",
         ["model", "threads", "token", *(["torch", "x", "spread"] if torch else []), "tokens/s", "bandwidth", "prompt",
          *(["torch", "x", "spread"] if torch else [])],
         [[*r["head"], ours(r["token"]), *(rival(r["token"]) if torch else []), figure(r["token"]["ours"] and 1e3 / r["token"]["ours"]),
           percent(r["share_of_bandwidth"]), ours(r["prefill"]), *(rival(r["prefill"]) if torch else [])]
          for r in rows])


def print_table(about, found):
    torch = about["torch"]
    print(f"attngrad {'beside PyTorch ' + torch if torch else 'alone: there is no PyTorch'}, {about['date']}")
    print(f"{about['processor']}, {about['cores']} cores, OpenBLAS core {about['openblas_core']}, "
          f"load average {about['load_average']} before")
    rounds = f"{about['rounds']} alternating round{'s' * (about['rounds'] > 1)}"
    print(f"medians of {rounds}; x: the other's time / ours, above 1 we are faster; spread: of the rounds' x")
    first = {}
    for r in found:
        first.setdefault((r["group"], r["name"]), len(first))
        r["head"] = [r["name"] + ("*" if r["under_load"] else ""), str(r["threads"])]
    found = sorted(found, key=lambda r: first[r["group"], r["name"]])  # a row's thread counts together
    for group, show_group in dict(attention=show_attention, training=show_training, ops=show_ops,
                                  forms=show_forms, decode=show_decode).items():
        show_group([r for r in found if r["group"] == group], torch)
    if any(r["under_load"] for r in found):
        print("\n* other processes used more than 10 % of a core meanwhile, in one round at least")
    if not about["complete"]:
        print("\nthe time was up before the last round's end; --rounds N lifts the limit")
