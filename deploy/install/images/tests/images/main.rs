//! The container images, with small programs in place of the driver's.

mod containerfile;
mod driver;
mod packed;
mod platforms;
mod pushed;
mod signature;
