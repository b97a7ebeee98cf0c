/// Names for threads, as traces, debuggers and `top -H` show them.
#pragma once

#include <string_view>

namespace sluice {

/// Names the calling thread; the kernel keeps the first 15 characters.
void name_this_thread(std::string_view name) noexcept;

}  // namespace sluice
