// Trains the model of build.py in Go: a network learns the product of two numbers.
//
//	go run examples/c_library/main.go
package main

// #cgo CFLAGS: -I${SRCDIR}/../out/c_library
// #cgo LDFLAGS: ${SRCDIR}/../out/c_library/libmodel.a
// #include "model.h"
import "C"

import (
	"fmt"
	"log"
	"unsafe"
)

const (
	inputs = 2
	hidden = 16
	batch  = 32
	steps  = 4000
)

// model has the weights, and the memory that the functions need.
type model struct {
	w1        [inputs * hidden]C.float
	b1, w2    [hidden]C.float
	workspace [C.MODEL_WORKSPACE_BYTES]byte
}

// step takes a step of gradient descent in place and returns the loss.
func (m *model) step(x *[batch * inputs]C.float, y *[batch]C.float) C.float {
	var loss C.float
	status := C.step(&m.b1[0], &m.w1[0], &m.w2[0], &x[0], &y[0], &loss, unsafe.Pointer(&m.workspace[0]))
	if status != C.WEFT_OK {
		log.Fatal(C.GoString(C.step_message(status)))
	}
	return loss
}

// predict returns what the network says of a batch.
func (m *model) predict(x *[batch * inputs]C.float) (found [batch]C.float) {
	status := C.predict(&m.b1[0], &m.w1[0], &m.w2[0], &x[0], &found[0], unsafe.Pointer(&m.workspace[0]))
	if status != C.WEFT_OK {
		log.Fatal(C.GoString(C.predict_message(status)))
	}
	return found
}

// numbers is a sequence of numbers between -1 and 1.
type numbers uint32

func (n *numbers) next() C.float {
	*n = *n*1664525 + 1013904223
	return C.float(*n>>8)/8388608 - 1
}

func main() {
	state := numbers(1)
	m := new(model)
	for i := range m.w1 {
		m.w1[i] = state.next()
	}
	for i := range m.w2 {
		m.w2[i] = state.next() / 4
	}
	var x [batch * inputs]C.float
	var y [batch]C.float
	for n := 1; n <= steps; n++ {
		for i := range y {
			x[2*i], x[2*i+1] = state.next(), state.next()
			y[i] = x[2*i] * x[2*i+1]
		}
		if loss := m.step(&x, &y); n%1000 == 0 {
			fmt.Printf("step %d: loss %.6f\n", n, float64(loss))
		}
	}
	for i := range x {
		x[i] = 0.5
	}
	fmt.Printf("0.5 * 0.5 = %.6f\n", float64(m.predict(&x)[0]))
}
