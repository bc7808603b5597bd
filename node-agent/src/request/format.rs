//! The keys of the volume context that set options of a new file system. The controller writes them
//! in lower case.

use std::collections::HashMap;

use ebs_csi_policy::format_option::{
    FormatOptions, GivenBy, OptionKind, OptionRow, ROWS, parse_number,
};
use ebs_csi_proto::Failure;
use ebs_csi_wire::{FormatOption, FsType};

type Context = HashMap<String, String>;

/// Reads all keys and checks them against the file system.
pub(super) fn options(
    volume_context: &Context,
    fs: FsType,
    legacy_xfs: bool,
) -> Result<Vec<FormatOption>, Failure> {
    let value = |row: &OptionRow| match (row.given_by, row.kind) {
        (GivenBy::LegacyXfsFlag, _) => Ok(legacy_xfs.into()),
        (GivenBy::StorageClass, OptionKind::Number) => number(volume_context, row.context_key),
        (GivenBy::StorageClass, OptionKind::Switch) => switch(volume_context, row.context_key),
    };
    let given =
        ROWS.iter().map(|row| Ok(row.with(value(row)?))).collect::<Result<Vec<_>, Failure>>()?;
    FormatOptions::check(&given, fs)
        .map(|options| options.to_wire())
        .map_err(|error| Failure::invalid("volume_context", error))
}

fn number(volume_context: &Context, key: &str) -> Result<u64, Failure> {
    let Some(text) = volume_context.get(key).filter(|text| !text.is_empty()) else {
        return Ok(0);
    };
    parse_number(text).ok_or_else(|| {
        Failure::invalid(
            &format!("volume_context.{key}"),
            format!(
                "{:?} is not a positive number; correct it in the StorageClass",
                super::shortened(text)
            ),
        )
    })
}

fn switch(volume_context: &Context, key: &str) -> Result<u64, Failure> {
    match volume_context.get(key).map(String::as_str) {
        None | Some("" | "false") => Ok(0),
        Some("true") => Ok(1),
        Some(other) => Err(Failure::invalid(
            &format!("volume_context.{key}"),
            format!(
                "{:?} is neither true nor false; correct it in the StorageClass",
                super::shortened(other)
            ),
        )),
    }
}
