use super::*;

#[test]
fn the_call_in_full_has_the_same_keys_and_arguments() {
    let command = RESIGN.command(7, &["{hub}:leader"], ("me", 5u64));
    let text = |command: &Cmd| {
        let args = command.args_iter().map(|arg| match arg {
            Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        });
        args.collect::<Vec<_>>()
    };
    let (by_hash, in_full) = (text(&command), text(&RESIGN.command_in_full(&command)));
    assert_eq!((&*by_hash[0], &*in_full[0]), ("EVALSHA", "EVAL"));
    assert_eq!(by_hash[2..], in_full[2..]);
    assert_eq!(by_hash[2..], ["1", "{hub}:leader", "7", "me", "5"]);
}
