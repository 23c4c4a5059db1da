/* Trains the model of build.py in C: a network learns the product of two numbers.
 *
 *   cc -std=c11 -Wall -Wextra -Werror -I examples/out/c_library examples/c_library/main.c \
 *      examples/out/c_library/libmodel.a -o examples/out/c_library/main
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 2, HIDDEN = 16, BATCH = 32, STEPS = 4000 };

/* Weights, a batch, and the memory that the functions need; the library allocates nothing. */
static float w1[INPUTS * HIDDEN], b1[HIDDEN], w2[HIDDEN], x[BATCH * INPUTS], y[BATCH], found[BATCH];
static _Alignas(64) unsigned char workspace[MODEL_WORKSPACE_BYTES];

/* Return the next of a sequence of numbers between -1 and 1. */
static float next_number(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static void check(int32_t status, const char *message) {
  if (status != WEFT_OK) {
    fprintf(stderr, "%s\n", message);
    exit(EXIT_FAILURE);
  }
}

int main(void) {
  uint32_t state = 1;
  for (int i = 0; i < INPUTS * HIDDEN; i++) w1[i] = next_number(&state);
  for (int i = 0; i < HIDDEN; i++) w2[i] = next_number(&state) / 4.0f;
  for (int n = 1; n <= STEPS; n++) {
    float loss;
    for (int i = 0; i < BATCH; i++) {
      x[2 * i] = next_number(&state);
      x[2 * i + 1] = next_number(&state);
      y[i] = x[2 * i] * x[2 * i + 1];
    }
    int32_t status = step(b1, w1, w2, x, y, &loss, workspace); /* writes over the weights */
    check(status, step_message(status));
    if (n % 1000 == 0) printf("step %d: loss %.6f\n", n, (double)loss);
  }
  for (int i = 0; i < BATCH * INPUTS; i++) x[i] = 0.5f;
  int32_t status = predict(b1, w1, w2, x, found, workspace);
  check(status, predict_message(status));
  printf("0.5 * 0.5 = %.6f\n", (double)found[0]);
  return EXIT_SUCCESS;
}
