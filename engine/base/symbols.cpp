#include "engine/base/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

namespace sluice {
namespace {

/// A file of the format ELF, of this machine's own kind; whatever lies outside of it reads as 0.
class ElfFile {
 public:
  explicit ElfFile(const char* path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  template <class T>
  T at(std::size_t offset) const {
    T value{};
    if (offset <= bytes_.size() && sizeof value <= bytes_.size() - offset) {
      std::memcpy(&value, bytes_.data() + offset, sizeof value);
    }
    return value;
  }
  std::string text(std::size_t offset) const {
    if (offset >= bytes_.size()) return {};
    const char* begin = bytes_.data() + offset;
    return {begin, ::strnlen(begin, bytes_.size() - offset)};
  }
  using Header = ElfW(Ehdr);
  using Section = ElfW(Shdr);
  Header header() const { return at<Header>(0); }
  Section section(std::size_t index) const {
    return at<Section>(header().e_shoff + index * sizeof(Section));
  }

 private:
  std::string bytes_;
};

/// Where this program was loaded.
std::uintptr_t base_of_program() {
  std::uintptr_t base = 0;
  // The program comes first.
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        *static_cast<std::uintptr_t*>(found) = info->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? std::string(readable.get()) : name;
}

}  // namespace

Symbols::Symbols() {
  const ElfFile file("/proc/self/exe");
  const std::uintptr_t base = base_of_program();
  for (std::size_t i = 0; i < file.header().e_shnum; ++i) {
    const ElfFile::Section table = file.section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    using Symbol = ElfW(Sym);
    const std::size_t names = file.section(table.sh_link).sh_offset;
    for (std::size_t at = 0; at + sizeof(Symbol) <= table.sh_size; at += sizeof(Symbol)) {
      const auto symbol = file.at<Symbol>(table.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0) continue;
      functions_.push_back(
          {base + symbol.st_value, symbol.st_size, file.text(names + symbol.st_name)});
    }
  }
  std::ranges::sort(functions_, {}, &Function::begin);
}

std::string Symbols::describe(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  Dl_info info{};
  std::string place = fmt::format("{:#x}", at);
  std::string name;
  if (::dladdr(address, &info) != 0) {
    const std::string path = info.dli_fname;
    place = fmt::format("{}+{:#x}", path.substr(path.rfind('/') + 1),
                        at - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
    if (info.dli_sname != nullptr) name = info.dli_sname;
  }
  const auto after = std::ranges::upper_bound(functions_, at, {}, &Function::begin);
  if (after != functions_.begin()) {
    const Function& before = *std::prev(after);
    if (at - before.begin < before.bytes) name = before.name;
  }
  return name.empty() ? place : fmt::format("{} {}", place, demangled(name));
}

}  // namespace sluice
