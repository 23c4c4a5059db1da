/* Functions in C that programs of Weft call: `weft.ffi.register_ffi_target(name, weft.ffi.pycapsule(function))`.
 *
 * A function gets one struct and returns 0, or another number after writing a message for the user. Arrays are stored by
 * rows, unless the call says otherwise, and live as long as the call. Memory of arguments is read-only; results are
 * written, and where the call has an alias, the argument and the result have the same memory.
 *
 *     #include "weft_ffi.h"
 *     int32_t twice(const weft_ffi_call *call) {
 *       const float *x = call->args[0].data;
 *       float *y = call->results[0].data;
 *       for (int64_t i = 0; i < weft_ffi_count(&call->args[0]); i++) y[i] = 2 * x[i];
 *       return 0;
 *     }
 */
#ifndef WEFT_FFI_H
#define WEFT_FFI_H

#include <stdint.h>
#include <string.h>

#define WEFT_FFI_VERSION 1

enum weft_ffi_dtype {
  WEFT_FFI_BOOL = 1, /* one byte, 0 or 1 */
  WEFT_FFI_INT8 = 2,
  WEFT_FFI_INT16 = 3,
  WEFT_FFI_INT32 = 4,
  WEFT_FFI_INT64 = 5,
  WEFT_FFI_UINT8 = 6,
  WEFT_FFI_UINT16 = 7,
  WEFT_FFI_UINT32 = 8,
  WEFT_FFI_UINT64 = 9,
  WEFT_FFI_FLOAT16 = 10,
  WEFT_FFI_BFLOAT16 = 11,
  WEFT_FFI_FLOAT32 = 12,
  WEFT_FFI_FLOAT64 = 13,
  WEFT_FFI_COMPLEX64 = 14,
  WEFT_FFI_COMPLEX128 = 15,
  WEFT_FFI_TEXT = 16 /* of attributes only: `count` bytes of UTF-8, and a zero */
};

typedef struct {
  void *data;
  const int64_t *shape;
  int64_t rank;
  int64_t dtype;
} weft_ffi_buffer;

typedef struct {
  const char *name;
  const void *data; /* a Python int is one int64, a float one double, a bool one byte */
  int64_t count;
  int64_t dtype;
} weft_ffi_attribute;

typedef struct {
  int64_t version; /* WEFT_FFI_VERSION */
  int64_t arg_count;
  const weft_ffi_buffer *args;
  int64_t result_count;
  const weft_ffi_buffer *results;
  int64_t attribute_count;
  const weft_ffi_attribute *attributes;
  char *message; /* room for what is wrong, with a zero at the end */
  int64_t message_size;
} weft_ffi_call;

typedef int32_t (*weft_ffi_function)(const weft_ffi_call *call);

/* How many elements an array has. */
static inline int64_t weft_ffi_count(const weft_ffi_buffer *buffer) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer->rank; i++) count *= buffer->shape[i];
  return count;
}

/* The attribute of a name, or a null pointer. */
static inline const weft_ffi_attribute *weft_ffi_find(const weft_ffi_call *call, const char *name) {
  for (int64_t i = 0; i < call->attribute_count; i++)
    if (strcmp(call->attributes[i].name, name) == 0) return &call->attributes[i];
  return 0;
}

#endif
