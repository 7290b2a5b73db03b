// Both implementations of the products; product.cc builds the operator types from them.
#pragma once

#include "nn/product.h"

namespace tidepool::nn {

namespace ref {
int32_t product_pieces(const ProductParams& p);
void product_run(const ProductParams& p, int32_t piece, int32_t num_pieces);
int32_t head_product_pieces(const HeadProductParams& p);
void head_product_run(const HeadProductParams& p, int32_t piece, int32_t num_pieces);
}  // namespace ref

namespace cpu {
int32_t product_pieces(const ProductParams& p);
void product_run(const ProductParams& p, int32_t piece, int32_t num_pieces);
int32_t head_product_pieces(const HeadProductParams& p);
void head_product_run(const HeadProductParams& p, int32_t piece, int32_t num_pieces);
}  // namespace cpu

}  // namespace tidepool::nn
