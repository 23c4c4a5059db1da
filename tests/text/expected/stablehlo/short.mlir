// StableHLO 1.7.0
module @jit_short attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<bf16>) {
    %1 = "stablehlo.convert"(%arg0) : (tensor<4xf32>) -> tensor<4xbf16>
    %2 = "stablehlo.constant"() {value = dense<3.0> : tensor<4xbf16>} : () -> tensor<4xbf16>
    %3 = "stablehlo.divide"(%1, %2) : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4xbf16>
    %4 = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %8 = "stablehlo.convert"(%3) : (tensor<4xbf16>) -> tensor<4xf32>
    %9 = "stablehlo.reduce"(%8, %4) ({
    ^bb0(%5: tensor<f32>, %6: tensor<f32>):
      %7 = "stablehlo.add"(%5, %6) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%7) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %10 = "stablehlo.convert"(%9) : (tensor<f32>) -> tensor<bf16>
    return %10 : tensor<bf16>
  }
}
