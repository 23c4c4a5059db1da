// StableHLO 1.7.0
module @jit_scan attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x4xf32>) -> (tensor<4xf32>, tensor<3x4xf32>) {
    %1 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 0, 0>, limit_indices = array<i64: 1, 4>, strides = array<i64: 1, 1>} : (tensor<3x4xf32>) -> tensor<1x4xf32>
    %2 = "stablehlo.reshape"(%1) : (tensor<1x4xf32>) -> tensor<4xf32>
    %3 = "stablehlo.constant"() {value = dense<0.0> : tensor<3x4xf32>} : () -> tensor<3x4xf32>
    %4 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
    %5 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %23, %24, %25 = "stablehlo.while"(%5, %2, %3) ({
    ^bb0(%6: tensor<i32>, %7: tensor<4xf32>, %8: tensor<3x4xf32>):
      %9 = "stablehlo.compare"(%6, %4) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%9) : (tensor<i1>) -> ()
    }, {
    ^bb0(%10: tensor<i32>, %11: tensor<4xf32>, %12: tensor<3x4xf32>):
      %13 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
      %14 = "stablehlo.dynamic_slice"(%arg0, %10, %13) {slice_sizes = array<i64: 1, 4>} : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
      %15 = "stablehlo.reshape"(%14) : (tensor<1x4xf32>) -> tensor<4xf32>
      %16 = "stablehlo.add"(%11, %15) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %17 = "stablehlo.constant"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
      %18 = "stablehlo.multiply"(%11, %17) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %19 = "stablehlo.reshape"(%18) : (tensor<4xf32>) -> tensor<1x4xf32>
      %20 = "stablehlo.dynamic_update_slice"(%12, %19, %10, %13) : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
      %21 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %22 = "stablehlo.add"(%10, %21) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%22, %16, %20) : (tensor<i32>, tensor<4xf32>, tensor<3x4xf32>) -> ()
    }) : (tensor<i32>, tensor<4xf32>, tensor<3x4xf32>) -> (tensor<i32>, tensor<4xf32>, tensor<3x4xf32>)
    return %24, %25 : tensor<4xf32>, tensor<3x4xf32>
  }
}
