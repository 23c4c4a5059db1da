// StableHLO 1.7.0
module @jit_sort attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
    %1 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<4xi32>
    %21, %22 = "stablehlo.sort"(%arg0, %1) ({
    ^bb0(%2: tensor<f32>, %3: tensor<f32>, %4: tensor<i32>, %5: tensor<i32>):
      %6 = "stablehlo.compare"(%2, %2) {comparison_direction = #stablehlo<comparison_direction NE>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %7 = "stablehlo.bitcast_convert"(%2) : (tensor<f32>) -> tensor<i32>
      %8 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
      %9 = "stablehlo.compare"(%7, %8) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %10 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
      %11 = "stablehlo.xor"(%7, %10) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %12 = "stablehlo.select"(%9, %11, %7) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
      %13 = "stablehlo.select"(%6, %10, %12) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
      %14 = "stablehlo.compare"(%3, %3) {comparison_direction = #stablehlo<comparison_direction NE>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %15 = "stablehlo.bitcast_convert"(%3) : (tensor<f32>) -> tensor<i32>
      %16 = "stablehlo.compare"(%15, %8) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %17 = "stablehlo.xor"(%15, %10) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %18 = "stablehlo.select"(%16, %17, %15) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
      %19 = "stablehlo.select"(%14, %10, %18) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
      %20 = "stablehlo.compare"(%13, %19) {comparison_direction = #stablehlo<comparison_direction GT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%20) : (tensor<i1>) -> ()
    }) {dimension = 0 : i64, is_stable = true} : (tensor<4xf32>, tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi32>)
    %23 = "stablehlo.slice"(%21) {start_indices = array<i64: 0>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<4xf32>) -> tensor<2xf32>
    %24 = "stablehlo.slice"(%22) {start_indices = array<i64: 0>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<4xi32>) -> tensor<2xi32>
    return %23, %24 : tensor<2xf32>, tensor<2xi32>
  }
}
