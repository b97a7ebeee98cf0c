// docs/deepspeed.md, from the table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "engine/config/deepspeed_keys.h"
#include "engine/config/write.h"

namespace sluice::config {
namespace {

constexpr std::string_view kFromDeepSpeed = R"(# From DeepSpeed to a run file

Written from the table in `engine/config/deepspeed_keys.cpp`; `ninja config_docs` writes it again.

`sluice config import-deepspeed ds.json -o run.yaml` writes a run file with every key of the JSON:
carried over, with where it comes from and any arithmetic above it; dropped, with the reason, at the end;
or refused, and then nothing is written. What changes the numbers and is not built is refused, and so are
unknown keys, equal keys and keys that contradict each other; all of them are named at once.

* The model and the data are in DeepSpeed's script: write `model.path` and `data.train` into the file, or
  name them at the start: `sluice train run.yaml model.path=FOLDER data.train=FILE`.
* `"auto"` stays auto. Where a key here has no auto, it is left at its default and listed as such: in
  DeepSpeed the calling script decides.
* Where a key is not set and DeepSpeed's default is another than sluice's, DeepSpeed's is written.
* Two keys that are not set are noted instead, at the top of the file and as a warning: `warmup_type`, whose
  default, a logarithm, is not built, and `gradient_clipping`, whose default depends on DeepSpeed's version.
  They are not refused because most files leave them out, the Hugging Face Trainer's above all, for which
  `warmup_type` changes no more than the first steps; who writes `"log"` is refused.
* What has no counterpart on purpose (buckets, live parameters, pipelined reads): everything overlaps as far
  as the limits of `tiers` allow ([design.md](design.md) 1).

| DeepSpeed | run file | how |
| --- | --- | --- |
)";

std::string conversion_of(const DeepSpeedKey& row) {
  switch (row.conversion) {
    case Conversion::kElements:
      return "elements x 12 bytes of state";
    case Conversion::kBytes:
      return "bytes";
    case Conversion::kFolder:
      return "one more folder";
    case Conversion::kSame:
    case Conversion::kCount:
    case Conversion::kWords:
    case Conversion::kDropped:
      return "";
  }
  return "";
}

std::string how(const DeepSpeedKey& row) {
  std::vector<std::string> parts;
  if (const std::string text = conversion_of(row); !text.empty()) parts.push_back(text);
  for (const Word& w : row.words) {
    if (!w.ours.empty() && w.ours != w.theirs) {
      parts.push_back(fmt::format("`{}` is `{}`", w.theirs, w.ours));
    }
  }
  if (!row.note.empty()) parts.push_back(row.note);
  if (!row.only_with.empty()) parts.push_back(fmt::format("with `{}`", row.only_with));
  for (const Unset& u : row.unset) {
    if (u.ours.empty() && u.note.empty()) continue;
    const std::string with = u.where.empty() ? ""
                             : u.values.empty()
                                 ? fmt::format(" with `{}`", u.where)
                                 : fmt::format(" with {}", fmt::join(u.values, ", "));
    parts.push_back(
        fmt::format("not set{}: {}{}", with, u.theirs, u.note.empty() ? "" : ", and noted"));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string goes_to(const DeepSpeedKey& row) {
  if (!row.to.empty()) return fmt::format("`{}`", row.to);
  if (row.conversion == Conversion::kDropped) return "dropped";
  return row.words.empty() ? "refused"
                           : fmt::format("refused unless `{}`", row.words.front().theirs);
}

}  // namespace

std::string deepspeed_markdown() {
  std::string out(kFromDeepSpeed);
  for (const DeepSpeedKey& row : deepspeed_keys()) {
    out += fmt::format("| `{}` | {} | {} |\n", row.from, goes_to(row), cell(how(row)));
  }
  return out;
}

}  // namespace sluice::config
