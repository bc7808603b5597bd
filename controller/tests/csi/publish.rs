//! ControllerPublishVolume and ControllerUnpublishVolume.

mod attach;
mod cards;
mod node_local;
mod published;
