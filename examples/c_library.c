/* Trains a network to say whether a point is inside of a circle, with the functions of the library `net`. */
#include "net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, HIDDEN = 16 };

/* A number from -1 to 1. */
static float uniform(void) { return (float)rand() / (float)RAND_MAX * 2 - 1; }

int main(int count, char **arguments) {
  int steps = count > 1 ? atoi(arguments[1]) : 1000;
  static float first[2 * HIDDEN], shift[HIDDEN], second[HIDDEN], x[2 * ROWS], y[ROWS], logits[ROWS];
  float loss = 0, rate = 1.0f;
  void *workspace = malloc(NET_WORKSPACE_BYTES + 1);
  for (int i = 0; i < 2 * HIDDEN; i++) first[i] = 2 * uniform();
  for (int i = 0; i < HIDDEN; i++) shift[i] = uniform(), second[i] = uniform();
  for (int i = 0; i < ROWS; i++) {
    x[2 * i] = uniform(), x[2 * i + 1] = uniform();
    y[i] = hypotf(x[2 * i], x[2 * i + 1]) < 0.7f;
  }
  for (int i = 0; i < steps; i++) {
    int32_t status = train(first, second, shift, x, y, &rate, &loss, workspace);
    if (status) {
      fprintf(stderr, "%s\n", train_message(status));
      return 1;
    }
  }
  if (predict(first, second, shift, x, logits, workspace)) return 1;
  int right = 0;
  for (int i = 0; i < ROWS; i++) right += (logits[i] > 0) == (y[i] > 0);
  printf("final loss %.4f, accuracy %.3f\n", (double)loss, (double)right / ROWS);
  free(workspace);
  return 0;
}
