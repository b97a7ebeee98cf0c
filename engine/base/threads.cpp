#include "engine/base/threads.h"

#include <pthread.h>

#include <string>

namespace sluice {

void name_this_thread(std::string_view name) {
  pthread_setname_np(pthread_self(), std::string(name.substr(0, 15)).c_str());
}

}  // namespace sluice
