"""The table of a bench: what its parts say together."""
import shapes


def of(results):
    """Per shape: rates in HBM, offloaded, and of plain PyTorch, and where offloading gets to 50 and
    90% of what there is in HBM."""
    done = {result["part"]: result for result in results if result["status"] == "ok"}
    peaks = {}
    if matmul := done.get("peak.matmul"):
        peaks["matmul_tflops"] = matmul["flops"] / matmul["seconds"]["median"] / 1e12
        done = {part: of_peak(result, peaks["matmul_tflops"]) for part, result in done.items()}
    if copy := done.get("peak.copy"):
        peaks |= {f"{way}_gbps": times * copy["bytes"] / copy[way]["median"] / 1e9
                  for way, times in (("h2d", 1), ("d2h", 1), ("both", 2))}
    if lanes := done.get("peak.lanes"):
        peaks |= {f"lanes_{way}_gbps": lanes[way]["median"] / 1e9
                  for way in ("h2d", "d2h", "both") if way in lanes}
    names = dict.fromkeys([name[5:].rsplit(".", 2)[0] for name in done if name.startswith("rate.")]
                          + [name.split(".", 1)[1].rsplit(".", 1)[0] for name in done
                             if name.startswith("torch.")])
    return {"peaks": peaks, "shapes": {name: of_shape(name, done) for name in names}}


def of_peak(result, tflops):
    if "tflops" not in result:
        return result
    return result | {"of_measured_peak": result["tflops"] / tflops}


def of_shape(name, done):
    rates = {}
    for part, result in done.items():
        if part.startswith(f"rate.{name}."):
            rates.setdefault(result["placement"], []).append(result)
    for points in rates.values():
        points.sort(key=lambda point: point["tokens_per_step"])
    found = {placement: [row(point, rates.get("hbm")) for point in points]
             for placement, points in rates.items()}
    found["torch"] = {mode: done[f"torch.{name}.{mode}"] for mode in ("eager", "compile")
                      if f"torch.{name}.{mode}" in done}
    if "hbm" in rates and "dram" in rates:
        curve = [(point["tokens_per_step"], point["tokens_per_s"]) for point in rates["dram"]]
        whole = max(as_layers(point, rates["dram"][0]) for point in rates["hbm"])
        for share in (50, 90):
            found[f"t{share}"] = shapes.tokens_for(share / 100, whole, curve)
    return found


def as_layers(point, other):
    """The rate of a point, as it would be with the layers of the other: the same FLOP/s."""
    return point["tokens_per_s"] * point["flops_per_token"] / other["flops_per_token"]


def row(point, in_hbm):
    """A point, beside the rate in HBM at as many tokens and at its best."""
    shares = {}
    if in_hbm and point["placement"] != "hbm":
        shares["of_best_in_hbm"] = point["tokens_per_s"] / max(
            as_layers(other, point) for other in in_hbm)
        for other in in_hbm:
            if other["tokens_per_step"] == point["tokens_per_step"]:
                shares["of_in_hbm"] = point["tokens_per_s"] / as_layers(other, point)
    return point | shares


def text(found, whole):
    """The same for people; a rate stands beside the median seconds of a step, and their spread."""
    host = found["host_memory"] / shapes.GIB
    lines = [f"{found['card']}, driver {found['driver'] or 'none'}, {host:.0f} GiB of host memory, "
             f"commit {found['commit']}"]
    peaks = whole["peaks"]
    if peaks:
        lines.append("measured: " + ", ".join(f"{key.replace('_', ' ')} {value:.4g}"
                                              for key, value in peaks.items()))
    for name, shape in whole["shapes"].items():
        lines += ["", f"{name:10} {'layers':>7} {'tokens':>7} {'s/step':>8} {'spread':>7} "
                      f"{'tok/s':>8} {'TFLOP/s':>8} {'of peak':>7} {'of HBM':>7}  bound"]
        for placement in ("hbm", "dram", "state", "nvme"):
            lines += [line(placement, point) for point in shape.get(placement, [])]
        lines += [line(f"torch {mode}", point) for mode, point in shape["torch"].items()]
        for key in ("t50", "t90"):
            if key in shape:
                (how, tokens), = shape[key].items()
                words = {"tokens": "at", "at_most": "at most at", "more_than": "beyond"}[how]
                lines.append(f"{key.upper()}: {words} {tokens} tokens per step")
    others = [result for result in found["parts"] if result["status"] not in ("ok", "left", "cut")]
    lines += ["", *(f"{result['part']}: {result['status']}: {result['why']}" for result in others)]
    return "\n".join(lines) + "\n"


def line(name, point):
    seconds = point["step_seconds"]
    spread = (seconds["max"] - seconds["min"]) / seconds["median"]
    shares = [f"{point[key]:7.1%}" if key in point else f"{'-':>7}"
              for key in ("of_measured_peak", "of_in_hbm")]
    bound = f"{point['bound']} {point['bound_share']:.0%}" if "bound" in point else ""
    return (f"{name:13.13} {point['layers']:>2}/{point['of']:<3} {point['tokens_per_step']:>5} "
            f"{seconds['median']:8.3f} {spread:7.1%} {point['tokens_per_s']:8.0f} "
            f"{point['tflops']:8.4g} {' '.join(shares)}  {bound}").rstrip()
