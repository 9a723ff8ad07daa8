//! Decides whether a program is right, and how fast it is.

mod breach;
pub mod check;
pub mod compare;
pub mod cores;
pub mod device;
pub mod draw;
pub mod element;
pub mod layout;
pub mod lock;
pub mod measure;
pub mod memory;
pub mod phases;
pub mod prepare;
pub mod program;
pub mod runner;
pub mod seeds;
pub mod statistics;
pub mod tensor;

pub use self::program::context;
