// Trains the model of build.py in Rust: a network learns the product of two numbers.
//
//   rustc --edition 2021 -O -L examples/out/c_library -o examples/out/c_library/main_rust examples/c_library/main.rs
use std::ffi::{c_char, c_void, CStr};

const INPUTS: usize = 2;
const HIDDEN: usize = 16;
const BATCH: usize = 32;
const STEPS: usize = 4000;

#[link(name = "model", kind = "static")]
extern "C" {
    fn step_run(arguments: *const *const c_void, results: *const *mut c_void, workspace: *mut c_void, sizes: *const i64) -> i32;
    fn step_message(status: i32) -> *const c_char;
    fn predict_run(arguments: *const *const c_void, results: *const *mut c_void, workspace: *mut c_void, sizes: *const i64) -> i32;
    fn predict_message(status: i32) -> *const c_char;
}

/// Memory that the functions need, aligned as it is fastest. `MODEL_WORKSPACE_BYTES` of the header is less.
#[repr(align(64))]
struct Workspace([u8; 8192]);

/// Weights and workspace. A reference to it is unique, so that no call runs at the same time in the same memory.
struct Model {
    w1: [f32; INPUTS * HIDDEN],
    b1: [f32; HIDDEN],
    w2: [f32; HIDDEN],
    workspace: Workspace,
}

fn check(status: i32, message: unsafe extern "C" fn(i32) -> *const c_char) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(message(status)) }.to_string_lossy().into_owned())
}

impl Model {
    /// Take a step of gradient descent in place; return the loss.
    fn step(&mut self, x: &[f32; BATCH * INPUTS], y: &[f32; BATCH]) -> Result<f32, String> {
        let mut loss = 0f32;
        let (b1, w1, w2) = (self.b1.as_mut_ptr(), self.w1.as_mut_ptr(), self.w2.as_mut_ptr());
        let arguments: [*const c_void; 5] = [b1.cast(), w1.cast(), w2.cast(), x.as_ptr().cast(), y.as_ptr().cast()];
        let results: [*mut c_void; 4] = [b1.cast(), w1.cast(), w2.cast(), (&mut loss as *mut f32).cast()];
        let workspace = self.workspace.0.as_mut_ptr().cast();
        let status = unsafe { step_run(arguments.as_ptr(), results.as_ptr(), workspace, std::ptr::null()) };
        check(status, step_message).map(|()| loss)
    }

    /// Return what the network says of a batch.
    fn predict(&mut self, x: &[f32; BATCH * INPUTS]) -> Result<[f32; BATCH], String> {
        let mut found = [0f32; BATCH];
        let arguments: [*const c_void; 4] =
            [self.b1.as_ptr().cast(), self.w1.as_ptr().cast(), self.w2.as_ptr().cast(), x.as_ptr().cast()];
        let results: [*mut c_void; 1] = [found.as_mut_ptr().cast()];
        let workspace = self.workspace.0.as_mut_ptr().cast();
        let status = unsafe { predict_run(arguments.as_ptr(), results.as_ptr(), workspace, std::ptr::null()) };
        check(status, predict_message).map(|()| found)
    }
}

/// Numbers between -1 and 1.
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1664525).wrapping_add(1013904223);
        (self.0 >> 8) as f32 / 8388608.0 - 1.0
    }
}

fn main() -> Result<(), String> {
    let mut numbers = Numbers(1);
    let mut model = Model { w1: [0.0; INPUTS * HIDDEN], b1: [0.0; HIDDEN], w2: [0.0; HIDDEN], workspace: Workspace([0; 8192]) };
    model.w1.fill_with(|| numbers.next());
    model.w2.fill_with(|| numbers.next() / 4.0);
    for n in 1..=STEPS {
        let (mut x, mut y) = ([0f32; BATCH * INPUTS], [0f32; BATCH]);
        for (pair, target) in x.chunks_exact_mut(INPUTS).zip(&mut y) {
            pair.fill_with(|| numbers.next());
            *target = pair[0] * pair[1];
        }
        let loss = model.step(&x, &y)?;
        if n % 1000 == 0 {
            println!("step {n}: loss {loss:.6}");
        }
    }
    println!("0.5 * 0.5 = {:.6}", model.predict(&[0.5; BATCH * INPUTS])?[0]);
    Ok(())
}
