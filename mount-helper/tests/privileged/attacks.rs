//! Attacks that once succeeded and must not succeed again, N1 to N22. The attacker is a scripted
//! agent with the agent's uid, a scripted broker, or a scripted tool under the filter of the
//! process that it replaces.
mod confinement;
mod content;
mod holders;
mod queues;
mod upkeep;

fn is_read_only(name: &str) -> bool {
    let file = format!("/sys/class/block/{name}/ro");
    std::fs::read_to_string(file).expect("ro").trim() == "1"
}
