//! Texts from files and from other programs.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the text of a file.
///
/// # Errors
/// Returns the path and the error of the read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns what a command prints.
///
/// # Errors
/// Returns the command line and its standard error if it cannot be started or fails.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let out = command
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{shown}: {error}"))?;
    if !out.status.success() {
        let error = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{shown}: {}", error.trim_end()));
    }
    String::from_utf8(out.stdout).map_err(|error| format!("{shown}: {error}"))
}
