/// Weights as Hugging Face safetensors: write them once, or read them.
#pragma once

#include "engine/checkpoint/reader.h"  // IWYU pragma: export
#include "engine/checkpoint/writer.h"  // IWYU pragma: export
