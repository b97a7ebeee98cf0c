#include "engine/tensor/allocator.h"

#include <c10/core/Allocator.h>

#include "engine/tensor/workspace.h"

namespace sluice::tensor {
namespace {

void give_back(void* p) {
  Routes::give_back(p);
}

class OurAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t n) override {
    void* p = n > 0 ? Routes::take(n) : nullptr;
    return {p, p, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t n) const override {
    default_copy_data(to, from, n);
  }
};

}  // namespace

void install_allocator() {
  static OurAllocator* const ours = [] {
    auto* allocator = new OurAllocator;  // LibTorch may use it until the very end of the process
    constexpr std::uint8_t kAboveTheDefault = 1;
    c10::SetAllocator(c10::DeviceType::CPU, allocator, kAboveTheDefault);
    return allocator;
  }();
  (void)ours;
}

}  // namespace sluice::tensor
