// Include before any Highway header: which targets are compiled.
//
// x86: SSE4, AVX2, AVX3. The baseline is raised to SSE4 so that Highway's one-lane fallback target is never built; a
// machine without SSE4.2 is not supported. arm: NEON alone (kernels keep vectors in arrays, so their size must be
// fixed).
#pragma once

#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#elif defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
