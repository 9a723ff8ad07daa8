//! The attackers. Each prints one line for everything that it could do, and `done` at its end.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nightshift_sandbox::{HostedMain, python_filter};

use crate::{kernel_files, signals, system_calls, users};

/// Entry points of this binary as a sandboxed process.
pub(crate) const HOSTED: HostedMain = HostedMain { native, python };

/// The last line of every program that came to its end.
pub(crate) const DONE: &str = "done";

#[expect(clippy::needless_pass_by_value, reason = "the entry point owns its descriptors")]
fn native(payload: &str, descriptors: Vec<OwnedFd>) -> i32 {
    run(payload, &descriptors)
}

/// A Python interpreter puts its filter in force after its start. This stands for one.
fn python(payload: &str, descriptors: &[OwnedFd]) -> String {
    let (payload, on_device) = match payload.strip_prefix("on-device ") {
        Some(payload) => (payload, true),
        None => (payload, false),
    };
    if let Err(message) = python_filter(on_device).and_then(|digits| put_in_force(&digits)) {
        return message;
    }
    std::process::exit(run(payload, descriptors))
}

/// Puts a filter in force as Python does it, from hexadecimal digits.
fn put_in_force(digits: &str) -> Result<(), String> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2).unwrap_or_default(), 16).unwrap_or(0);
    let mut code: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    let program = libc::sock_fprog {
        len: u16::try_from(code.len() / 8).map_err(|error| error.to_string())?,
        filter: code.as_mut_ptr().cast(),
    };
    // SAFETY: the structure points to instructions that live until the call returns; the kernel copies them unaligned.
    let status = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if status == 0 { Ok(()) } else { Err(format!("seccomp: {}", std::io::Error::last_os_error())) }
}

fn run(payload: &str, descriptors: &[OwnedFd]) -> i32 {
    let (name, argument) = payload.split_once(' ').unwrap_or((payload, ""));
    match name {
        "identity" => users::print_identity(),
        "kernel-files" => kernel_files::attack(argument),
        "protection" => kernel_files::print_protection(),
        "signals" => signals::attack(argument),
        "system-calls" => system_calls::attack(argument == "native"),
        "unfiltered-calls" => system_calls::attack_without_filter(),
        "count" => count(descriptors, argument),
        "count-without-first-thread" => count_without_first_thread(descriptors),
        "print" => print_forever(),
        "allocate-when-told" => {
            let told = &counters(descriptors[0].as_raw_fd())[0];
            while told.load(Ordering::Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            allocate(argument.parse().unwrap());
        }
        "threads" => threads(argument.parse().unwrap()),
        "see" => println!("{}", std::path::Path::new(argument).exists()),
        "sleep" => std::thread::sleep(Duration::from_mins(1)),
        _ => panic!("there is no program {name}"),
    }
    println!("{DONE}");
    let _ = std::io::stdout().flush();
    0
}

/// Counts in shared memory, with one counter for each of so many threads.
fn count(descriptors: &[OwnedFd], threads: &str) {
    let threads: usize = threads.parse().unwrap();
    let counters = counters(descriptors[0].as_raw_fd());
    std::thread::scope(|scope| {
        for counter in counters.iter().take(threads) {
            scope.spawn(move || {
                loop {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}

/// Counts in another thread after the first one has ended.
fn count_without_first_thread(descriptors: &[OwnedFd]) {
    let counter = &counters(descriptors[0].as_raw_fd())[0];
    std::thread::spawn(move || {
        loop {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    // SAFETY: ends this thread alone, which holds no locks.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// The counters in the memory of a descriptor.
pub(crate) fn counters(descriptor: i32) -> &'static [AtomicU64] {
    // SAFETY: the descriptor is an anonymous file of a page, which stays mapped.
    unsafe {
        let address =
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, descriptor, 0);
        assert_ne!(address, libc::MAP_FAILED);
        std::slice::from_raw_parts(address.cast::<AtomicU64>(), 512)
    }
}

fn print_forever() {
    let mut stdout = std::io::stdout().lock();
    while stdout.write_all(b"x").and_then(|()| stdout.flush()).is_ok() {}
}

/// Uses so many bytes of memory.
fn allocate(bytes: usize) {
    let mut memory = vec![0_u8; bytes];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    println!("allocated {}", memory.len());
}

/// Starts so many threads that wait, and prints how many started.
fn threads(wanted: usize) {
    let start = |_: &usize| std::thread::Builder::new().stack_size(64 * 1024).spawn(std::thread::park).is_ok();
    println!("{}", (0..wanted).take_while(start).count());
}

/// Prints a file that can be opened for writing.
pub(crate) fn try_to_write(path: &str) {
    if OpenOptions::new().write(true).open(path).is_ok() {
        println!("wrote {path}");
    }
}

/// Prints a file that can be opened for reading.
pub(crate) fn try_to_read(path: &str) {
    if OpenOptions::new().read(true).open(path).is_ok() {
        println!("read {path}");
    }
}
