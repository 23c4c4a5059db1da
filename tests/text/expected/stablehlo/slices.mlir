// StableHLO 1.7.0
module @jit_slices attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x4xf32>, %arg1: tensor<i32>) -> (tensor<2x3xf32>) {
    %1 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %2 = "stablehlo.compare"(%arg1, %1) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %3 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
    %4 = "stablehlo.add"(%arg1, %3) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %5 = "stablehlo.select"(%2, %4, %arg1) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %6 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
    %7 = "stablehlo.clamp"(%1, %5, %6) : (tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %8 = "stablehlo.dynamic_slice"(%arg0, %7, %1) {slice_sizes = array<i64: 2, 4>} : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    %9 = "stablehlo.compare"(%arg1, %1) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %10 = "stablehlo.constant"() {value = dense<4> : tensor<i32>} : () -> tensor<i32>
    %11 = "stablehlo.add"(%arg1, %10) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %12 = "stablehlo.select"(%9, %11, %arg1) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %13 = "stablehlo.clamp"(%1, %12, %6) : (tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %14 = "stablehlo.dynamic_slice"(%8, %1, %13) {slice_sizes = array<i64: 2, 3>} : (tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
    return %14 : tensor<2x3xf32>
  }
}
