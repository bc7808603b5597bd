//! The keys of the volume context that set options of a new file system. The controller writes them
//! in lower case.

use std::collections::HashMap;

use ebs_csi_proto::Failure;
use ebs_csi_wire::format::{UncheckedFormatOptions, parse_number};
use ebs_csi_wire::{FormatOptions, FsType};

type Context = HashMap<String, String>;

/// Reads all keys and checks them against the file system.
pub(super) fn options(
    volume_context: &Context,
    fs: FsType,
    legacy_xfs: bool,
) -> Result<FormatOptions, Failure> {
    let number = |key| number(volume_context, key);
    let switch = |key| switch(volume_context, key);
    let given = UncheckedFormatOptions {
        block_size: number("blocksize")?,
        inode_size: number("inodesize")?,
        bytes_per_inode: number("bytesperinode")?,
        number_of_inodes: number("numberofinodes")?,
        ext4_bigalloc: switch("ext4bigalloc")?,
        ext4_cluster_size: number("ext4clustersize")?,
        ext4_encryption: switch("ext4encryptionsupport")?,
        legacy_xfs,
    };
    let options =
        FormatOptions::check(given).map_err(|error| Failure::invalid("volume_context", error))?;
    options.check_for(fs).map_err(|error| Failure::invalid("volume_context", error))?;
    Ok(options)
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

fn switch(volume_context: &Context, key: &str) -> Result<bool, Failure> {
    match volume_context.get(key).map(String::as_str) {
        None | Some("" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(Failure::invalid(
            &format!("volume_context.{key}"),
            format!(
                "{:?} is neither true nor false; correct it in the StorageClass",
                super::shortened(other)
            ),
        )),
    }
}
