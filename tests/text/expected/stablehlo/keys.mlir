// StableHLO 1.7.0
module @jit_keys attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<i32>) -> (tensor<2xui32>) {
    %1 = "stablehlo.convert"(%arg0) : (tensor<i32>) -> tensor<ui32>
    %2 = "stablehlo.constant"() {value = dense<0> : tensor<ui32>} : () -> tensor<ui32>
    %3 = "stablehlo.reshape"(%2) : (tensor<ui32>) -> tensor<1xui32>
    %4 = "stablehlo.reshape"(%1) : (tensor<ui32>) -> tensor<1xui32>
    %5 = "stablehlo.concatenate"(%3, %4) {dimension = 0 : i64} : (tensor<1xui32>, tensor<1xui32>) -> tensor<2xui32>
    %6 = "stablehlo.slice"(%5) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xui32>) -> tensor<1xui32>
    %7 = "stablehlo.reshape"(%6) : (tensor<1xui32>) -> tensor<ui32>
    %8 = "stablehlo.slice"(%5) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xui32>) -> tensor<1xui32>
    %9 = "stablehlo.reshape"(%8) : (tensor<1xui32>) -> tensor<ui32>
    %10 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2xui32>
    %11 = "stablehlo.reshape"(%7) : (tensor<ui32>) -> tensor<1xui32>
    %12 = "stablehlo.reshape"(%9) : (tensor<ui32>) -> tensor<1xui32>
    %13 = "stablehlo.concatenate"(%11, %12) {dimension = 0 : i64} : (tensor<1xui32>, tensor<1xui32>) -> tensor<2xui32>
    %14 = "stablehlo.slice"(%13) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xui32>) -> tensor<1xui32>
    %15 = "stablehlo.reshape"(%14) : (tensor<1xui32>) -> tensor<ui32>
    %16 = "stablehlo.slice"(%13) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xui32>) -> tensor<1xui32>
    %17 = "stablehlo.reshape"(%16) : (tensor<1xui32>) -> tensor<ui32>
    %18 = "stablehlo.constant"() {value = dense<0> : tensor<2xui32>} : () -> tensor<2xui32>
    %19 = "stablehlo.broadcast_in_dim"(%15) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2xui32>
    %20 = "stablehlo.broadcast_in_dim"(%17) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2xui32>
    %160, %161 = "func.call"(%19, %20, %18, %10) {callee = @threefry2x32_1} : (tensor<2xui32>, tensor<2xui32>, tensor<2xui32>, tensor<2xui32>) -> (tensor<2xui32>, tensor<2xui32>)
    %162 = "stablehlo.xor"(%160, %161) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    return %162 : tensor<2xui32>
  }
  func.func private @threefry2x32_1(%21: tensor<2xui32>, %22: tensor<2xui32>, %23: tensor<2xui32>, %24: tensor<2xui32>) -> (tensor<2xui32>, tensor<2xui32>) {
    %25 = "stablehlo.xor"(%21, %22) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %26 = "stablehlo.constant"() {value = dense<466688986> : tensor<2xui32>} : () -> tensor<2xui32>
    %27 = "stablehlo.xor"(%25, %26) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %28 = "stablehlo.add"(%23, %21) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %29 = "stablehlo.add"(%24, %22) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %30 = "stablehlo.add"(%28, %29) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %31 = "stablehlo.constant"() {value = dense<13> : tensor<2xui32>} : () -> tensor<2xui32>
    %32 = "stablehlo.shift_left"(%29, %31) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %33 = "stablehlo.constant"() {value = dense<19> : tensor<2xui32>} : () -> tensor<2xui32>
    %34 = "stablehlo.shift_right_logical"(%29, %33) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %35 = "stablehlo.or"(%32, %34) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %36 = "stablehlo.xor"(%30, %35) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %37 = "stablehlo.add"(%30, %36) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %38 = "stablehlo.constant"() {value = dense<15> : tensor<2xui32>} : () -> tensor<2xui32>
    %39 = "stablehlo.shift_left"(%36, %38) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %40 = "stablehlo.constant"() {value = dense<17> : tensor<2xui32>} : () -> tensor<2xui32>
    %41 = "stablehlo.shift_right_logical"(%36, %40) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %42 = "stablehlo.or"(%39, %41) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %43 = "stablehlo.xor"(%37, %42) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %44 = "stablehlo.add"(%37, %43) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %45 = "stablehlo.constant"() {value = dense<26> : tensor<2xui32>} : () -> tensor<2xui32>
    %46 = "stablehlo.shift_left"(%43, %45) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %47 = "stablehlo.constant"() {value = dense<6> : tensor<2xui32>} : () -> tensor<2xui32>
    %48 = "stablehlo.shift_right_logical"(%43, %47) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %49 = "stablehlo.or"(%46, %48) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %50 = "stablehlo.xor"(%44, %49) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %51 = "stablehlo.add"(%44, %50) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %52 = "stablehlo.shift_left"(%50, %47) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %53 = "stablehlo.shift_right_logical"(%50, %45) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %54 = "stablehlo.or"(%52, %53) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %55 = "stablehlo.xor"(%51, %54) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %56 = "stablehlo.add"(%51, %22) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %57 = "stablehlo.constant"() {value = dense<1> : tensor<2xui32>} : () -> tensor<2xui32>
    %58 = "stablehlo.add"(%27, %57) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %59 = "stablehlo.add"(%55, %58) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %60 = "stablehlo.add"(%56, %59) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %61 = "stablehlo.shift_left"(%59, %40) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %62 = "stablehlo.shift_right_logical"(%59, %38) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %63 = "stablehlo.or"(%61, %62) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %64 = "stablehlo.xor"(%60, %63) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %65 = "stablehlo.add"(%60, %64) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %66 = "stablehlo.constant"() {value = dense<29> : tensor<2xui32>} : () -> tensor<2xui32>
    %67 = "stablehlo.shift_left"(%64, %66) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %68 = "stablehlo.constant"() {value = dense<3> : tensor<2xui32>} : () -> tensor<2xui32>
    %69 = "stablehlo.shift_right_logical"(%64, %68) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %70 = "stablehlo.or"(%67, %69) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %71 = "stablehlo.xor"(%65, %70) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %72 = "stablehlo.add"(%65, %71) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %73 = "stablehlo.constant"() {value = dense<16> : tensor<2xui32>} : () -> tensor<2xui32>
    %74 = "stablehlo.shift_left"(%71, %73) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %75 = "stablehlo.shift_right_logical"(%71, %73) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %76 = "stablehlo.or"(%74, %75) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %77 = "stablehlo.xor"(%72, %76) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %78 = "stablehlo.add"(%72, %77) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %79 = "stablehlo.constant"() {value = dense<24> : tensor<2xui32>} : () -> tensor<2xui32>
    %80 = "stablehlo.shift_left"(%77, %79) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %81 = "stablehlo.constant"() {value = dense<8> : tensor<2xui32>} : () -> tensor<2xui32>
    %82 = "stablehlo.shift_right_logical"(%77, %81) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %83 = "stablehlo.or"(%80, %82) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %84 = "stablehlo.xor"(%78, %83) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %85 = "stablehlo.add"(%78, %27) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %86 = "stablehlo.constant"() {value = dense<2> : tensor<2xui32>} : () -> tensor<2xui32>
    %87 = "stablehlo.add"(%21, %86) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %88 = "stablehlo.add"(%84, %87) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %89 = "stablehlo.add"(%85, %88) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %90 = "stablehlo.shift_left"(%88, %31) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %91 = "stablehlo.shift_right_logical"(%88, %33) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %92 = "stablehlo.or"(%90, %91) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %93 = "stablehlo.xor"(%89, %92) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %94 = "stablehlo.add"(%89, %93) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %95 = "stablehlo.shift_left"(%93, %38) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %96 = "stablehlo.shift_right_logical"(%93, %40) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %97 = "stablehlo.or"(%95, %96) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %98 = "stablehlo.xor"(%94, %97) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %99 = "stablehlo.add"(%94, %98) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %100 = "stablehlo.shift_left"(%98, %45) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %101 = "stablehlo.shift_right_logical"(%98, %47) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %102 = "stablehlo.or"(%100, %101) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %103 = "stablehlo.xor"(%99, %102) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %104 = "stablehlo.add"(%99, %103) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %105 = "stablehlo.shift_left"(%103, %47) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %106 = "stablehlo.shift_right_logical"(%103, %45) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %107 = "stablehlo.or"(%105, %106) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %108 = "stablehlo.xor"(%104, %107) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %109 = "stablehlo.add"(%104, %21) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %110 = "stablehlo.add"(%22, %68) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %111 = "stablehlo.add"(%108, %110) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %112 = "stablehlo.add"(%109, %111) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %113 = "stablehlo.shift_left"(%111, %40) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %114 = "stablehlo.shift_right_logical"(%111, %38) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %115 = "stablehlo.or"(%113, %114) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %116 = "stablehlo.xor"(%112, %115) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %117 = "stablehlo.add"(%112, %116) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %118 = "stablehlo.shift_left"(%116, %66) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %119 = "stablehlo.shift_right_logical"(%116, %68) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %120 = "stablehlo.or"(%118, %119) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %121 = "stablehlo.xor"(%117, %120) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %122 = "stablehlo.add"(%117, %121) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %123 = "stablehlo.shift_left"(%121, %73) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %124 = "stablehlo.shift_right_logical"(%121, %73) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %125 = "stablehlo.or"(%123, %124) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %126 = "stablehlo.xor"(%122, %125) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %127 = "stablehlo.add"(%122, %126) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %128 = "stablehlo.shift_left"(%126, %79) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %129 = "stablehlo.shift_right_logical"(%126, %81) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %130 = "stablehlo.or"(%128, %129) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %131 = "stablehlo.xor"(%127, %130) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %132 = "stablehlo.add"(%127, %22) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %133 = "stablehlo.constant"() {value = dense<4> : tensor<2xui32>} : () -> tensor<2xui32>
    %134 = "stablehlo.add"(%27, %133) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %135 = "stablehlo.add"(%131, %134) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %136 = "stablehlo.add"(%132, %135) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %137 = "stablehlo.shift_left"(%135, %31) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %138 = "stablehlo.shift_right_logical"(%135, %33) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %139 = "stablehlo.or"(%137, %138) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %140 = "stablehlo.xor"(%136, %139) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %141 = "stablehlo.add"(%136, %140) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %142 = "stablehlo.shift_left"(%140, %38) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %143 = "stablehlo.shift_right_logical"(%140, %40) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %144 = "stablehlo.or"(%142, %143) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %145 = "stablehlo.xor"(%141, %144) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %146 = "stablehlo.add"(%141, %145) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %147 = "stablehlo.shift_left"(%145, %45) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %148 = "stablehlo.shift_right_logical"(%145, %47) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %149 = "stablehlo.or"(%147, %148) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %150 = "stablehlo.xor"(%146, %149) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %151 = "stablehlo.add"(%146, %150) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %152 = "stablehlo.shift_left"(%150, %47) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %153 = "stablehlo.shift_right_logical"(%150, %45) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %154 = "stablehlo.or"(%152, %153) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %155 = "stablehlo.xor"(%151, %154) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %156 = "stablehlo.add"(%151, %27) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %157 = "stablehlo.constant"() {value = dense<5> : tensor<2xui32>} : () -> tensor<2xui32>
    %158 = "stablehlo.add"(%21, %157) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    %159 = "stablehlo.add"(%155, %158) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    return %156, %159 : tensor<2xui32>, tensor<2xui32>
  }
}
