// A window over the page, opened and closed by the address, so that it can be shared too.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useText } from "../i18n/text";

export function Dialog({
  title,
  onClose,
  children,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const t = useText();
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (!ref.current?.open) ref.current?.showModal();
  }, []);
  return (
    <dialog
      ref={ref}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === ref.current) ref.current?.close();
      }}
    >
      <div class="inside">
        <div class="dialog-head">
          <h2>{title}</h2>
          <button type="button" onClick={() => ref.current?.close()}>
            {t("ui.web.dialog.close")}
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}
